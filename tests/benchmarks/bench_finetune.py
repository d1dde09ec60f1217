"""Fine-tuning on sentences of SST-2's lengths: ours and transformers' Trainer, same weights.

    python -m tests.benchmarks.bench_finetune [--recipe NAME] [--steps N] [--threads N]

Random weights of a recipe's shapes with the head of a sentence's label, in float32, on the CPU;
random ids, 32 sentences per step. Both sides train on batches of the same lengths, theirs padded
to the longest sentence. Trainer reads them in order, because its own grouping by length sorts a
quarter of the examples at most. Making the model is not counted; optimizer, batches and training
are. Trainer needs accelerate: if this environment lacks it, the benchmark runs in one beside it.
Both sides take turns: medians of ratios.
"""

import importlib.util
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from model.hugging_face.conversion import to_hugging_face
from model.tasks.heads import HEADS
from model.tasks.task_model import TaskDesign, TaskModel, read_task_model, write_task_model
from pipeline.base.errors import run_command
from pipeline.downstream.batches import epoch_order
from pipeline.downstream.features import Feature, Row
from pipeline.downstream.protocols import ROBERTA, TuningProtocol
from pipeline.downstream.training import fine_tune
from pipeline.planning.build import build_model
from pipeline.recipes import recipe
from tests.benchmarks.models import CPU
from tests.benchmarks.timing import THREADS, in_turn, median, parse, ratio
from tests.launching.environments import install_beside

SHARES = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1)
LENGTHS = (4, 6, 7, 8, 9, 11, 14, 17, 21, 28, 34, 45, 67)
"""Tokens that these shares of SST-2's training sentences do not exceed, in RoBERTa's ids."""
ROWS = 32
ROUNDS = 3
GOAL = 1.0
KIND = "classification"


def random_lengths(count: int) -> npt.NDArray[np.int64]:
    """Lengths of SST-2's distribution."""
    shares = np.random.default_rng(0).random(count)
    return np.interp(shares, SHARES, LENGTHS).astype(np.int64)


def sentences(count: int, ids: int) -> list[Feature]:
    """Random ids and labels in rows of SST-2's lengths, in the order of training."""
    rng = np.random.default_rng(0)
    lengths = random_lengths(count)
    lengths = lengths[np.concatenate(epoch_order(lengths.tolist(), ROWS, 0, 0))]
    return [
        Feature(i, (Row([0, *rng.integers(5, ids, n - 2).tolist(), 2], int(n), [0]),), (i % 2,))
        for i, n in enumerate(lengths)
    ]


def make_trainer(
    model: TaskModel, features: list[Feature], protocol: TuningProtocol, folder: Path
) -> Any:
    """Trainer with the same weights, examples and hyperparameters."""
    import transformers

    state, config = write_task_model(model)
    kind = getattr(transformers, HEADS["roberta"][KIND].architecture)
    theirs = kind(transformers.AutoConfig.for_model(**config))
    theirs.load_state_dict(state, strict=False)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"<s>": 0, "<pad>": 1}, unk_token="<s>")),
        pad_token="<pad>",
    )
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=protocol.rows, num_train_epochs=1,
        learning_rate=protocol.peak_lr, warmup_steps=protocol.warmup,
        weight_decay=protocol.weight_decay, adam_beta2=protocol.beta2,
        adam_epsilon=protocol.epsilon, max_grad_norm=protocol.clip,
        train_sampling_strategy="sequential", use_cpu=True, report_to=[], disable_tqdm=True,
        save_strategy="no", logging_strategy="no", remove_unused_columns=False,
    )  # fmt: skip
    examples = [
        {"input_ids": feature.rows[0].ids, "labels": int(feature.targets[0])}
        for feature in features
    ]
    return transformers.Trainer(
        theirs, arguments, train_dataset=examples, processing_class=tokenizer,
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
    )  # fmt: skip


def bench(name: str, steps: int, work: Path) -> None:
    """Print the ratio for a recipe's shapes; steps: of an epoch."""
    run = replace(recipe(name), precision="fp32")
    model = read_task_model(
        *to_hugging_face(build_model(run, seed=0)), TaskDesign(KIND, ("0", "1")), seed=0
    )
    protocol = replace(ROBERTA, rows=ROWS, epochs=1)
    features = sentences(steps * ROWS, model.config.vocab_size)
    trainer = make_trainer(model, features, protocol, work)
    lengths = [len(feature.rows[0].ids) for feature in features]
    shown = sum(ROWS * max(lengths[at : at + ROWS]) for at in range(0, len(lengths), ROWS))
    sides = {
        "Trainer": trainer.train,
        "ours": lambda: fine_tune(model, features, KIND, protocol, 0, CPU),
    }
    found = in_turn(sides, ROUNDS)
    faster = ratio(found["Trainer"], found["ours"])
    each = [1e3 * median(found[side]).wall / len(features) for side in sides]
    print(
        f"finetune: {name}, {len(features):,} sentences of {statistics.fmean(lengths):.1f} tokens, "
        f"{shown / len(features):.1f} with pads: Trainer {each[0]:.1f} ms, ours {each[1]:.1f} "
        f"ms per example by the clock, ratio {faster.wall:.2f}, by CPU seconds {faster.cpu:.2f} "
        f"(goal >= {GOAL:g}), {torch.get_num_threads()} threads, {len(found['ours'])} rounds",
        flush=True,
    )


def main() -> None:
    options = parse(__doc__, recipe="roberta_base", steps=16, threads=THREADS)
    with tempfile.TemporaryDirectory() as folder:
        if importlib.util.find_spec("accelerate"):
            bench(options.recipe, options.steps, Path(folder))
            return
        python = install_beside(Path(folder), "accelerate", "--no-deps", "accelerate")
        subprocess.run([python, "-m", __spec__.name, *sys.argv[1:]], check=True)


if __name__ == "__main__":
    run_command(main)

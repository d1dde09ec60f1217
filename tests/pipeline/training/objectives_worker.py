"""One rank of every objective under DeepSpeed: trains toy sizes at each stage, and compares.

`torchrun --nproc-per-node N objectives_worker.py OUT.json some`, or `all`: one start for all
settings. `graphs` counts what is compiled instead. The plain loop (plain.py) is the reference. Rows
have different lengths and numbers of predictions, so the counts that the parts of the loss are
averaged over differ between ranks and micro-batches. end_to_end/test_zero_objectives.py reads the
output of rank 0.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[3]))

import torch
import torch.distributed as dist
from torch._dynamo.testing import CompileCounter

from model import encoder
from model.hugging_face.conversion import Model, logical_parameters
from model.objectives.masked_language import Inputs
from model.objectives.span_boundary import boundaries
from model.objectives.word_heads import MaskedLanguageHead
from model.pieces import pieces_of
from pipeline.base.errors import run_command
from pipeline.cluster.process_group import init_distributed
from pipeline.config.run import Run
from pipeline.config.settings import override
from pipeline.evaluation.loss_parts import first_count, loss_sum
from pipeline.loading.micro_batch import LossCounts
from pipeline.planning.build import build_model, compile_layers
from pipeline.planning.deepspeed_config import DeepSpeedFile, read_deepspeed_file
from pipeline.planning.schedule import learning_rate
from pipeline.recipes import recipe
from pipeline.training.optimizer.engine import ZeroEngine, initialize_engine
from tests.pipeline.training import plain
from tests.pipeline.training.frozen import freeze
from tests.pipeline.training.held import held_bytes, whole_weights
from tests.pipeline.training.zero_settings import SMALL

CASES = {
    "mlm": "roberta_tiny",
    "mlm + nsp": "bert_tiny",
    "mlm + sop, shared":
        "albert_tiny encoder.layers=6 encoder.groups=2 encoder.embedding_width=16",
    "mlm + sop, unshared":
        "albert_tiny encoder.layers=6 encoder.sharing=none encoder.embedding_width=16",
    "mlm + rtd": "electra_tiny encoder.embedding_width=16 objective.generator.width=0.5",
    "mlm + rtd, tied":
        "electra_tiny encoder.embedding_width=16 objective.generator.width=1 "
        "objective.generator.layers=1 objective.generator.tied=true",
    "mlm + rtd, masked, own embeddings":
        "electra_tiny encoder.embedding_width=16 objective.generator.width=0.5 "
        "objective.generator.embeddings=own objective.kind=rtd_masked",
    "mlm + words": "electra_tiny objective.generator.width=0.5 objective.kind=replace_mlm",
    "mlm + words, all":
        "electra_tiny encoder.embedding_width=16 objective.generator.width=0.5 "
        "objective.kind=all_tokens_mlm objective.words_weight=10",
    "mlm + sbo": "spanbert_tiny",
    "mlm, gated, rotary":
        "modernbert_tiny encoder.layers=3 encoder.window=8 encoder.global_every=2",
}  # fmt: skip
"""Objectives: a recipe, and the settings changed in it besides sizes."""
SOME = [
    ("mlm", "lamb", 0), ("mlm", "adamw", 2),
    ("mlm + nsp", "lamb", 1), ("mlm + nsp", "adamw", 3),
    ("mlm + sop, shared", "lamb", 2), ("mlm + sop, shared", "adamw", 1),
    ("mlm + sop, shared", "albert", 3), ("mlm + sop, unshared", "lamb", 2),
    ("mlm + rtd", "lamb", 3), ("mlm + rtd", "adamw", 0),
    ("mlm + rtd, tied", "lamb", 1), ("mlm + rtd, tied", "adamw", 2),
    ("mlm + rtd, masked, own embeddings", "lamb", 2), ("mlm + words", "adamw", 3),
    ("mlm + words, all", "lamb", 1), ("mlm + words, all", "adamw", 0),
    ("mlm + sbo", "lamb", 3), ("mlm + sbo", "adamw", 1),
    ("mlm, gated, rotary", "lamb", 2), ("mlm, gated, rotary", "adamw", 3),
]  # fmt: skip
"""Case, optimizer and stage that every test run trains: every pair of values occurs."""
SEQUENCES, LENGTH, STEPS, ACCUMULATION = 24, 20, 5, 2
SLOTS = 4
"""Prediction slots per row; some are unused."""
BOS, EOS, PAD, MASK, FIRST_WORD = 0, 2, 1, 4, 5
SIZES = [
    "encoder.layers=2", "encoder.width=32", "encoder.heads=2", "encoder.feed_forward=48",
    "encoder.positions=64", "encoder.initializer_range=0.2", "data.vocab_size=261",
]  # fmt: skip


def settings(what: str) -> list[tuple[str, str, int]]:
    """SOME, or all: for ALBERT also its own LAMB."""
    pairs = [*product(CASES, ("lamb", "adamw")), ("mlm + sop, shared", "albert")]
    every = [(case, kind, stage) for case, kind in pairs for stage in range(4)]
    return {"some": SOME, "all": every}[what]


def run_of(case: str, optimizer: str) -> Run:
    """A family's recipe at toy size, with rates that move the weights far."""
    name, *settings = CASES[case].split()
    run = override(recipe(name), [*SIZES, *settings])
    return replace(
        run, steps=STEPS, schedule=replace(run.schedule, warmup_steps=1),
        batch=replace(run.batch, sequences=SEQUENCES),
        optimizer=replace(
            run.optimizer,
            kind="adamw" if optimizer == "adamw" else "lamb",
            lamb_variant="albert" if optimizer == "albert" else "paper",
            peak_lr=0.01 if optimizer == "adamw" else 0.02,
            eps=1e-3,  # see zero_worker.py: otherwise a tiny gradient decides
            weight_decay=0.05, clip_norm=0.5,
        ),
    )  # fmt: skip


def batch(step: int, span: bool) -> Step:
    """The global batch of a step; span: predicted positions are adjacent."""
    generator = torch.Generator().manual_seed(step)

    def drawn(low: int, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=generator)

    ids = drawn(FIRST_WORD, 261, SEQUENCES, LENGTH)
    ids[:, 0] = BOS
    lengths = drawn(12, LENGTH + 1, SEQUENCES)
    ids[torch.arange(SEQUENCES), lengths - 1] = EOS
    ids[torch.arange(LENGTH) >= lengths[:, None]] = PAD
    used = drawn(1, SLOTS + 1, SEQUENCES)
    places = torch.arange(SLOTS) * (1 if span else 2) + drawn(1, 4, SEQUENCES, 1)
    weights = (torch.arange(SLOTS) < used[:, None]).float()
    positions = (places + torch.arange(SEQUENCES)[:, None] * LENGTH) * weights.long()
    labels = ids.flatten()[positions] * weights.long()
    shown = (drawn(0, 5, SEQUENCES, SLOTS) > 0) & (weights > 0)
    ids.view(-1)[positions[shown]] = MASK
    return Step(
        ids=ids, lengths=lengths, labels=labels, weights=weights,
        segments=(torch.arange(LENGTH) >= lengths[:, None] // 2).long(),
        places=places * weights.long(), pair_labels=drawn(-1, 2, SEQUENCES),
        draws=drawn(-(2**62), 2**62, SEQUENCES, SLOTS),
    )  # fmt: skip


class Step(NamedTuple):
    """The global batch of a step, by rows."""

    ids: torch.Tensor
    lengths: torch.Tensor
    segments: torch.Tensor
    places: torch.Tensor
    labels: torch.Tensor
    weights: torch.Tensor
    pair_labels: torch.Tensor
    draws: torch.Tensor


def part(given: Step, begin: int, end: int) -> Inputs:
    """The rows from `begin` to `end` as a batch of flat tokens, with the slots of these rows."""
    rows = Step(*(value[begin:end] for value in given))
    lengths = rows.lengths.tolist()
    kept = torch.arange(LENGTH) < rows.lengths[:, None]
    pieces = pieces_of(lengths)
    starts = pieces.cu_seqlens[:-1].long()
    return Inputs(
        input_ids_T=rows.ids[kept], pieces=pieces,
        positions_K=((rows.places + starts[:, None]) * rows.weights.long()).flatten(),
        labels_K=rows.labels.flatten(), weights_K=rows.weights.flatten(), mask_id=MASK,
        segment_ids_T=rows.segments[kept], row_starts_R=starts, pair_labels_R=rows.pair_labels,
        draws_K=rows.draws.flatten(), edge_ids=(BOS, EOS),
    )  # fmt: skip


def counts_of(given: Step) -> LossCounts:
    """The counts of a whole step."""
    flat = part(given, 0, SEQUENCES)
    asked = boundaries(flat.input_ids_T, flat.positions_K, flat.weights_K, flat.edge_ids)
    return LossCounts(
        predictions=int(given.weights.sum()),
        tokens=int(given.lengths.sum()),
        pairs=int((given.pair_labels >= 0).sum()),
        boundaries=int(asked.weights.sum()),
    )


def steps_of(run: Run) -> Iterator[tuple[Step, LossCounts]]:
    for step in range(STEPS):
        given = batch(step, run.objective.kind == "mlm_sbo")
        yield given, counts_of(given)


def losses(model: Model, run: Run, chunks: int) -> Iterator[Iterator[torch.Tensor]]:
    """The losses that `plain.train` needs; each part is divided by its own count."""
    size = SEQUENCES // chunks

    def of_chunk(given: Inputs, counts: LossCounts, begin: int) -> torch.Tensor:
        sums, loss = model(part(given, begin, begin + size)), torch.zeros(())
        for own in model.parts:
            loss = loss + own.weight * sums[f"{own.name}_loss"] / getattr(counts, own.per)
        return loss

    for given, counts in steps_of(run):
        yield (of_chunk(given, counts, begin) for begin in range(0, SEQUENCES, size))


@functools.cache
def reference(case: str, optimizer: str, chunks: int) -> plain.Weights:
    """The plain loop's weights after a run."""
    run = run_of(case, optimizer)
    model = build_model(run, seed=0).train()
    return plain.train(model, run, logical_parameters(model), losses(model, run, chunks), chunks)


def trained(run: Run, file: DeepSpeedFile) -> tuple[ZeroEngine, int]:
    """The engine after all steps, and the bytes that it held before the last one."""
    model = build_model(run, seed=0).train()
    rows, held = SEQUENCES // (dist.get_world_size() * ACCUMULATION), 0
    engine = initialize_engine(
        model, run, file, logical_parameters(model), rows=rows, accumulation=ACCUMULATION
    )
    for step, (given, counts) in enumerate(steps_of(run), 1):
        first = engine.rank * rows * ACCUMULATION
        for begin in range(first, first + rows * ACCUMULATION, rows):
            sums = engine(part(given, begin, begin + rows))
            engine.backward(loss_sum(model.parts, sums, counts), first_count(model.parts, counts))
        held = held_bytes(engine)
        assert engine.step(learning_rate(run, step))
    return engine, held


def measure(case: str, optimizer: str, stage: int) -> dict[str, Any]:
    run = run_of(case, optimizer)
    file = DeepSpeedFile("small", {**read_deepspeed_file(f"zero{stage}").zero, **SMALL[stage]})
    engine, held = trained(run, file)
    ours = whole_weights(engine)
    found = {"case": case, "optimizer": optimizer, "stage": stage, "held": held}
    if engine.rank == 0:
        start = build_model(run, seed=0)
        initial = plain.whole(start, logical_parameters(start))
        # a key's bias has no gradient except rounding errors
        initial = {n: weight for n, weight in initial.items() if not n.endswith("key.bias")}
        alone = reference(case, optimizer, 1)
        chunked = reference(case, optimizer, engine.world_size * ACCUMULATION)
        found |= {
            "parts": [part.name for part in start.parts],
            "distance": plain.distance(ours, alone, initial),
            "floor": plain.distance(chunked, alone, initial),
            "unmoved": [name for name in initial if torch.equal(initial[name], alone[name])],
        }
    engine.close()
    return found


def count_graphs(case: str, stage: int) -> dict[str, Any]:
    """Graphs compiled after each of two rounds of training and validation.

    Without a layout, layers on a CPU take the path of a GPU that has no flash attention.
    """
    run = replace(run_of(case, "adamw"), precision="bf16")
    torch._dynamo.reset()
    encoder.lay_out = lambda *_: None  # type: ignore[attr-defined]
    counter = CompileCounter()
    model = build_model(run, seed=0).train()
    compile_layers(model, stage, counter)
    engine = initialize_engine(
        model, run, read_deepspeed_file(f"zero{stage}"), logical_parameters(model),
        rows=SEQUENCES, accumulation=1,
    )  # fmt: skip
    given = part(batch(0, run.objective.kind == "mlm_sbo"), 0, SEQUENCES)
    rounds = []
    for _ in range(2):
        engine.backward(loss_sum(model.parts, engine(given), counts_of(batch(0, False))), 1)
        engine.step(1e-3)
        model.eval()
        with torch.no_grad():
            engine(given)
        model.train()
        rounds.append(counter.frame_count)
    engine.close()
    breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    # SpanBERT's head asks for losses of the same shapes, which are compiled once for both.
    heads = [part for part in model.modules() if isinstance(part, MaskedLanguageHead)]
    configs = [encoder.config for encoder in model.encoders()]
    kinds = len({(each, each.reach(depth)) for each in configs for depth in range(each.layers)})
    kinds += len({each.embedding_width for each in configs}) + len(heads)
    return {"case": case, "stage": stage, "rounds": rounds, "kinds": kinds, "breaks": breaks}


def main() -> None:
    torch.set_num_threads(1)
    init_distributed()
    freeze()
    if sys.argv[2] == "graphs":
        found = [count_graphs(case, stage) for case in CASES for stage in range(4)]
    else:
        found = [measure(*setting) for setting in settings(sys.argv[2])]
    if dist.get_rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(found, indent=1))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    run_command(main, at_once=True)

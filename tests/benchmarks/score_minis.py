"""What a mini is worth: fine-tuned scores and grammar, compared with random weights.

    python -m tests.benchmarks.score_minis RUN --eval DIR --shards DIR --output DIR
        [--only sst2 zorro ...] [--seeds N] [--train-rows N] [--jobs N] [--skip-random]

DIR of --eval has a folder for each evaluation set: SST-2, MRPC, CoLA, RTE, CosmosQA, NER,
SQuAD2_cs224n, XQuAD, Zorro and BLiMP. SQuAD is its development file without the paragraphs that
XQuAD repeats, divided by article; squad1 has its questions with an answer. CosmosQA is divided by
context. 3 epochs, no grid, at most --train-rows training examples; fine-tuning multiplies in
bfloat16, grammar is scored in float32. Random weights are normal. Runs --jobs tasks at a time, one
thread each; run it again to continue. Prints lines of the table in RESULTS.md.
"""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.base.files import write_whole
from pipeline.planning.build import build_model
from pipeline.released.folder import WEIGHTS
from pipeline.training.run_directory.run_json import read_record
from pipeline.training.weights.model_folders import write_folder

TASKS: dict[str, dict[str, str]] = {
    "sst2": {"--data": "SST-2", "--dev": "SST-2/test.tsv"},  # test.tsv is GLUE's dev
    "wikigold": {"--data": "NER/wikigold/CONLL-format/data"},
    "mrpc": {"--data": "MRPC"},
    "cola": {"--data": "CoLA/raw"},
    "rte": {"--data": "RTE"},
    "wnut17": {"--data": "NER/WNUT17/CONLL-format/data"},
    "cosmosqa": {"--train": "CosmosQA/valid.csv"},
    "squad1": {"--train": "squad1.json"},
    "squad2": {"--train": "squad2.json"},
}
"""Files of each task below --eval; those of SQuAD are below the output."""
SQUAD = ("squad1", "squad2")
DIVIDED = ("cosmosqa", *SQUAD)
"""Tasks of which a fifth of the training file is for development."""
ONE_SEED = ("cola", "rte", "wnut17", "cosmosqa")
"""Tasks that --seeds does not apply to."""
GRAMMAR = {"zorro": "Zorro", "blimp": "BLiMP/BLiMP.zip"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--eval", type=Path, required=True)
    parser.add_argument("--shards", type=Path, required=True, help="for word frequencies")
    parser.add_argument("--output", type=Path, required=True)
    every = (*TASKS, *GRAMMAR)
    parser.add_argument("--only", nargs="+", choices=every, default=list(every))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--train-rows", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--skip-random", action="store_true", help="leave out random weights, half of the work"
    )
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name in set(SQUAD) & set(arguments.only):
        path = arguments.output / TASKS[name]["--train"]
        write_squad(arguments.eval, path, unanswerable=name == "squad2")
    if set(GRAMMAR) & set(arguments.only) and not arguments.skip_random:
        write_random(arguments.run, arguments.shards, arguments.output / "random")

    def finish(name: str) -> None:
        row = grammar_row if name in GRAMMAR else task_row
        print(row(name, arguments), flush=True)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(finish, arguments.only))


def task_row(name: str, given: argparse.Namespace) -> str:
    """The row of a task. `pipeline.finetune` skips the seeds that are finished."""
    output = given.output / name
    seeds = 1 if name in ONE_SEED else given.seeds
    folder = given.output if name in SQUAD else given.eval
    call(
        "pipeline.finetune", output.with_suffix(".log"), given.run, "--task", name, "--bf16",
        "--output", output, "--epochs", 3, "--train-rows", given.train_rows, "--seeds", seeds,
        *(f"{option}={folder / file}" for option, file in TASKS[name].items()),
        *(["--dev-share", 0.2] if name in DIVIDED else []),
        *(["--baselines", "bag"] if given.skip_random else []),
    )  # fmt: skip
    scores = json.loads((output / "scores.json").read_text())
    metric, baselines = scores["metric"], scores["baselines"]
    sizes = f"{scores['data']['train']:,} / {scores['data']['dev']:,}"
    arms = (scores["scores"], baselines.get("random"), baselines["bag"])
    results = [percent(arm[metric]) if arm else "" for arm in arms]
    cells = [f"{name}, {metric}", sizes, str(seeds), *results]
    return f"| {' | '.join(cells)} | {100 * baselines['majority'][metric]:.1f} |"


def percent(summary: dict[str, Any]) -> str:
    """`77.8 (76.9 to 78.7)`; the mean alone of one seed."""
    mean = f"{100 * summary['mean']:.1f}"
    if summary["n"] == 1:
        return mean
    return f"{mean} ({100 * summary['low']:.1f} to {100 * summary['high']:.1f})"


def grammar_row(name: str, given: argparse.Namespace) -> str:
    """The row of a set of minimal pairs; word frequencies stand in the column of the bag."""
    scores = []
    for model in (given.run, *([] if given.skip_random else [given.output / "random"])):
        said = call(
            "pipeline.evaluate", given.output / f"{name}-{model.name}.log", model, "--json",
            "--grammar", given.eval / GRAMMAR[name], "--data", given.shards,
        )  # fmt: skip
        scores.append(json.loads(said)["grammar"]["overall"])
    accuracies = [
        f"{100 * score['accuracy']:.1f} ± {100 * score['standard_error']:.1f}" for score in scores
    ]
    accuracies += [""] * (2 - len(accuracies))
    frequencies = f"{100 * scores[0]['frequency_accuracy']:.1f}"
    cells = [f"{name}, accuracy ± error", f"{scores[0]['pairs']:,} pairs", "", *accuracies]
    return f"| {' | '.join(cells)} | {frequencies} (frequencies) | 50.0 |"


def call(module: str, log: Path, *arguments: object) -> bytes:
    """Run a command with one thread; returns what it printed, which is logged, too."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with log.open("a") as file:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=file, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        file.write(done.stdout.decode())
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}, see {log}")
    return done.stdout


def write_squad(eval_sets: Path, path: Path, *, unanswerable: bool) -> None:
    """SQuAD 2.0's development file without the paragraphs that XQuAD repeats.

    unanswerable: with the questions that have no answer; without them it is of SQuAD 1.1's kind.
    """
    squad = json.loads((eval_sets / "SQuAD2_cs224n/dev-v2.0.json").read_text())
    repeated = {
        paragraph["context"].strip()
        for article in json.loads((eval_sets / "XQuAD/xquad.en.json").read_text())["data"]
        for paragraph in article["paragraphs"]
    }
    for article in squad["data"]:
        kept = [part for part in article["paragraphs"] if part["context"].strip() not in repeated]
        article["paragraphs"] = kept
        for paragraph in kept:
            paragraph["qas"] = [
                question
                for question in paragraph["qas"]
                if unanswerable or not question["is_impossible"]
            ]
    write_whole(path, json.dumps(squad).encode())


def write_random(run: Path, shards: Path, folder: Path) -> None:
    """A model of the run's shape with normal initial weights, as `finetune`'s random weights."""
    if (folder / WEIGHTS).exists():
        return
    settings = read_record(run).run
    encoder = replace(settings.encoder, initializer="normal")
    model = build_model(replace(settings, encoder=encoder), seed=settings.seed + 1)
    write_folder(model, shards / "tokenizer", folder)


if __name__ == "__main__":
    main()

"""Record this version's results: `python -m tests.golden.record PART...`, see `recording.py`.

With `--only FAMILY` the values of the others stay as they are. Recorded values change only by this
command. Columns, losses and exports are those that a release promises (pipeline/RELEASES.md), so
record only what is meant to change, and say why in the commit.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline import export, train_tokenizer
from pipeline.base.errors import run_command
from pipeline.training.checkpoints.fragment_files import seal, unseal
from pipeline.training.checkpoints.read import step_name
from tests.golden import formats, recording
from tests.golden.recording import CELLS, EXPORTS, FAMILIES, GOLDEN, RUNS, SAVED, TOKENIZERS

PARTS = ("tokenizers", "columns", "formats", "runs", "exports")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="+", choices=PARTS, help="what to record again")
    parser.add_argument("--only", choices=FAMILIES, help="record this family, and no other")
    arguments = parser.parse_args()
    chosen, families = arguments.parts, [arguments.only] if arguments.only else FAMILIES
    cells = families if arguments.only else CELLS
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        if "tokenizers" in chosen:
            record_tokenizers()
        if "formats" in chosen:
            record_formats(work / "formats")
        for cell in cells if set(chosen) - {"tokenizers", "formats"} else ():
            recording.prepared(cell, work / cell)
        if "columns" in chosen:
            before = json.loads((GOLDEN / "columns.json").read_bytes())
            found = {cell: recording.described(work / cell) for cell in cells}
            write("columns", found)
            if "runs" not in chosen:
                follow_shards({before[cell]["fingerprint"]: found[cell]["fingerprint"]
                               for cell in cells})  # fmt: skip
        if "runs" in chosen:
            record_runs(work, families)
        if "exports" in chosen:
            record_exports(work, families)


def record_tokenizers() -> None:
    """TOKENIZERS, trained on the sample."""
    shutil.rmtree(TOKENIZERS, ignore_errors=True)
    for name, recipe in recording.TRAINED.items():
        recording.call(
            train_tokenizer.main, "--corpus", "sample", "--recipe", recipe,
            "--vocab-size", recording.VOCAB_SIZE, "--output", TOKENIZERS / name,
        )  # fmt: skip


def record_formats(work: Path) -> None:
    """The shards of a corpus of each format, a line each."""
    found = {
        name: formats.described(formats.prepared(name, files, work / name))
        for name, files in formats.all_corpora().items()
    }
    lines = (f"{json.dumps(name)}: {json.dumps(values)}" for name, values in found.items())
    (GOLDEN / "formats.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def follow_shards(fingerprints: dict[str, str]) -> None:
    """RUNS that were recorded before go with these shards; fingerprints: old -> new.

    So they keep their losses and weights.
    """
    for family in FAMILIES:
        directory = RUNS / family / "checkpoints" / step_name(int(SAVED))
        state = directory / "state.json"
        state.write_bytes(seal(_renamed(unseal(state), fingerprints)))
        run = RUNS / family / "run.json"
        content = _renamed(json.loads(run.read_bytes()), fingerprints)
        run.write_text(json.dumps(content, indent=1))


def _renamed(values: dict[str, Any], fingerprints: dict[str, str]) -> dict[str, Any]:
    text = json.dumps(values)
    for old, new in fingerprints.items():
        text = text.replace(f'"{old}"', f'"{new}"')
    renamed: dict[str, Any] = json.loads(text)
    return renamed


def record_runs(work: Path, families: Sequence[str]) -> None:
    """RUNS, as they are after SAVED steps, and the losses of all steps."""
    jobs: dict[str, list[list[str]]] = {"saved": [], "whole": []}
    for family in families:
        shards = recording.lesson(work / family)
        for name, extra in (("saved", ("--stop-at", SAVED)), ("whole", ())):
            output = work / name / family
            jobs[name].append(recording.run_arguments(family, shards, output, *extra))
    failure = recording.train(jobs["saved"] + jobs["whole"], work / "jobs.json")
    assert not failure, failure
    for family in families:
        shutil.rmtree(RUNS / family, ignore_errors=True)
        run = work / "saved" / family
        shutil.copytree(run / "checkpoints", RUNS / family / "checkpoints")
        shutil.copy(run / "metrics.jsonl", RUNS / family)
        content = json.loads((run / "run.json").read_bytes())
        content["data"][0]["directory"] = f"shards/{family}"
        (RUNS / family / "run.json").write_text(json.dumps(content, indent=1))
    write("losses", {family: recording.losses(work / "whole" / family) for family in families})


def record_exports(work: Path, families: Sequence[str]) -> None:
    """EXPORTS of RUNS, and their logits."""
    for family in families:
        shutil.rmtree(EXPORTS / family, ignore_errors=True)
        recording.call(
            export.main, RUNS / family, "--data", work / family, "--output", EXPORTS / family
        )
        (EXPORTS / family / "README.md").unlink()  # its commands want what export made elsewhere
    write("logits", {family: recording.logits(EXPORTS / family) for family in families})


def write(name: str, values: dict[str, Any]) -> None:
    """Write recorded values to their file, in place of those of the same names."""
    path = GOLDEN / f"{name}.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | values, indent=1) + "\n")


if __name__ == "__main__":
    run_command(main, at_once=True)

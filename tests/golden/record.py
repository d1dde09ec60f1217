"""Record this version's results: `python -m tests.golden.record NAMES...`, see README.md.

Recorded values change only by this command. Record only what is meant to change, and say why in the
commit.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from pipeline import export, train_tokenizer
from pipeline.base.errors import run_command
from pipeline.training.checkpoints.fragment_files import seal, unseal
from pipeline.training.checkpoints.read import step_name
from tests.golden import recording
from tests.golden.cases import CASES
from tests.golden.compare import Case, differences, recorded, write
from tests.golden.recording import CELLS, EXPORTS, FAMILIES, RUNS, SAVED, TOKENIZERS, command
from tests.launching import process

PARTS = ("tokenizers", "columns", "runs", "exports")
"""What is recorded as fixtures, not as cases."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", help=f"cases such as 'formats/*', or {PARTS}")
    parser.add_argument("--only", choices=FAMILIES, help="fixtures of this family, and no other")
    parser.add_argument("--against", metavar="COMMIT", help="compare cases with it, to the bit")
    parser.add_argument("--print", action="store_true", help="print the cases, record nothing")
    arguments = parser.parse_args()
    cases = [
        case for case in CASES if any(fnmatch(case.name, name) for name in arguments.names)
    ]  # fmt: skip
    chosen = [name for name in arguments.names if name in PARTS]
    if not cases and not chosen:
        parser.error(f"no case is called like {' '.join(arguments.names)}")
    results: dict[str, Any] = {}
    owner = process.ForkServerOwner()
    try:
        for case in cases:
            results[case.name] = _measured(case)
            if not (arguments.print or arguments.against):
                write(case.name, results[case.name])
        record_fixtures(chosen, [arguments.only] if arguments.only else FAMILIES)
    finally:
        owner.close()
    if arguments.print:
        print(json.dumps(results))
    if arguments.against:
        compare(arguments.against, results)


def _measured(case: Case) -> Any:
    before = os.times()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        found = case.run(Path(folder))
    seconds = os.times().elapsed - before.elapsed
    print(f"{case.name}: {seconds:.1f} s", file=sys.stderr, flush=True)
    return found


def compare(commit: str, results: dict[str, Any]) -> None:
    """Compare results with those of another commit on this machine, to the bit.

    Cases that the commit does not have are named and not compared. Its kernels are compiled first,
    below the checkout, so that nothing of it stays.
    """
    with tempfile.TemporaryDirectory() as folder:
        checkout = ["git", "worktree", "add", "--quiet", "--detach", folder, commit]
        subprocess.run(checkout, check=True)
        try:
            command = [sys.executable, "-m", "tests.golden.record", "--print", *results]
            environment = os.environ | {
                "NUMBA_CACHE_DIR": f"{folder}/kernels",
                "PYTHONPATH": folder,
            }
            done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", folder], check=True)
    if done.returncode:
        sys.exit(f"error: {commit} cannot measure {' '.join(results)}, see above")
    theirs = json.loads(done.stdout)
    if missing := results.keys() - theirs.keys():
        print(f"not in {commit}: {', '.join(sorted(missing))}")
    ours = {name: results[name] for name in theirs}
    found = differences(theirs, ours)
    print("\n".join(found) or f"{len(ours)} cases are those of {commit}, to the bit")
    sys.exit(bool(found))


def record_fixtures(chosen: Sequence[str], families: Sequence[str]) -> None:
    """Tokenizers, columns, runs and exports, of all families or of one."""
    cells = CELLS if families is FAMILIES else families
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        if "tokenizers" in chosen:
            record_tokenizers()
        for cell in cells if set(chosen) - {"tokenizers"} else ():
            recording.prepared(cell, work / cell)
        if "columns" in chosen:
            before = recorded("columns")
            found = {cell: recording.described(work / cell) for cell in cells}
            write_all("columns", found)
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
    for family in families:
        shards = recording.lesson(work / family)
        for name, extra in (("saved", ("--stop-at", SAVED)), ("whole", ())):
            output = work / name / family
            command("train", *recording.run_arguments(family, shards, output, *extra))
        shutil.rmtree(RUNS / family, ignore_errors=True)
        run = work / "saved" / family
        shutil.copytree(run / "checkpoints", RUNS / family / "checkpoints")
        shutil.copy(run / "metrics.jsonl", RUNS / family)
        content = json.loads((run / "run.json").read_bytes())
        content["data"][0]["directory"] = f"shards/{family}"
        (RUNS / family / "run.json").write_text(json.dumps(content, indent=1))
    write_all("losses", {family: recording.losses(work / "whole" / family) for family in families})


def record_exports(work: Path, families: Sequence[str]) -> None:
    """EXPORTS of RUNS, and their logits."""
    for family in families:
        shutil.rmtree(EXPORTS / family, ignore_errors=True)
        recording.call(
            export.main, RUNS / family, "--data", work / family, "--output", EXPORTS / family
        )
        (EXPORTS / family / "README.md").unlink()  # its commands want what export made elsewhere
    write_all("logits", {family: recording.logits(EXPORTS / family) for family in families})


def write_all(kind: str, values: dict[str, Any]) -> None:
    """Write recorded values to their file, in place of those of the same names."""
    write(kind, (recorded(kind) or {}) | values)


if __name__ == "__main__":
    run_command(main, at_once=True)

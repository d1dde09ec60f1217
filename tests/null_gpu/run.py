"""`make test-null`: counts the cases on the null GPU and holds them against expected.json.

    .venv/bin/python -m tests.null_gpu.run [--all] [--or-skip] [--record] [--only TEXT]

Writes build/null-gpu.json, a list of cases. See README.md for what is counted and what is not.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.null_gpu.cases import ALL, USUAL, Cell, key, problems, recorded
from tests.null_gpu.commands import check_commands
from tests.null_gpu.compiled_kernels import norm_instructions, spilled_bytes, tools
from tests.null_gpu.environment import ROOT, make_environment, packages_of, variables

FOLDER = ROOT / "build" / "null-gpu"
RESULT = ROOT / "build" / "null-gpu.json"
EXPECTED = Path(__file__).parent / "expected.json"
INSTALL_SECONDS = 900
CELL_SECONDS = 1800
CAPABILITY = {"A100": 80, "H100": 90, "H200": 90, "B200": 100}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="every cell, not those of CI only")
    parser.add_argument("--or-skip", action="store_true", help="succeed without an environment")
    parser.add_argument("--record", action="store_true", help="write expected.json")
    parser.add_argument("--only", default="", help="cells whose names contain TEXT")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    given = parser.parse_args()
    if reason := make_environment(FOLDER / "venv", INSTALL_SECONDS):
        print(f"make test-null is skipped: {reason}", flush=True)
        sys.exit(0 if given.or_skip else 1)
    cells = [cell for cell in (ALL if given.all else USUAL) if given.only in cell.name]
    variables(FOLDER / "venv", FOLDER / "device", FOLDER, "H200")  # compiles it, once
    with ThreadPoolExecutor(given.jobs) as pool:
        found = [*pool.map(cases_of, cells)]
    cases = [case for own, _ in found for case in own]
    failed = [message for _, message in found if message]
    failed += commands(gate=given.all) if not given.only else []
    RESULT.write_text(json.dumps(cases, indent=1))
    if given.record:
        record(cases)
    expected = json.loads(EXPECTED.read_text())["cases"]
    failed += [problem for case in cases for problem in held(case, expected)]
    print(table(cases))
    for problem in failed:
        print(f"error: {problem}", file=sys.stderr)
    print(f"{RESULT}: {len(cases)} cases, counted and not measured")
    sys.exit(1 if failed else 0)


def cases_of(cell: Cell) -> tuple[list[dict[str, Any]], str]:
    """The cases of a cell, or why there are none."""
    scratch = FOLDER / "scratch" / cell.name
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    stages = map(str, cell.stages)
    settings = [f"--set={setting}" for setting in cell.settings]
    began = time.monotonic()
    result = subprocess.run(
        [FOLDER / "venv" / "bin" / "python", "-m", "tests.null_gpu.count_case",
         cell.recipe, cell.rows, *settings, "--stages", *stages],
        env=variables(FOLDER / "venv", FOLDER / "device", scratch, cell.board), cwd=ROOT,
        capture_output=True, text=True, check=False, timeout=CELL_SECONDS,
    )  # fmt: skip
    print(f"{cell.name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    if result.returncode:
        (scratch / "stderr").write_text(result.stderr)
        last = result.stderr.strip().splitlines()[-1:]
        return [], f"{cell.name} failed: {''.join(last)}; see {scratch / 'stderr'}"
    assembler, disassembler = tools(packages_of(FOLDER / "venv"), CAPABILITY[cell.board])
    about = {
        "board": cell.board,
        "spilled_bytes": spilled_bytes(scratch / "triton", assembler),
        "norm_instructions": norm_instructions(scratch / "triton", disassembler),
    }
    return [case | about for case in json.loads(result.stdout.splitlines()[-1])], ""


def commands(*, gate: bool) -> list[str]:
    """What does not hold of commands that run on the null GPU."""
    folder = FOLDER / "commands"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    own = variables(FOLDER / "venv", FOLDER / "device", folder, "H200")
    return [*check_commands(FOLDER / "venv" / "bin" / "python", own, folder, gate=gate)]


def held(case: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """What does not hold of a case."""
    if key(case) not in expected:
        return [f"{key(case)} is not in {EXPECTED}; record it with --record"]
    return [*problems(case, expected[key(case)])]


def record(cases: Sequence[Mapping[str, Any]]) -> None:
    """Write the cases into expected.json, which keeps its others and its notes."""
    content = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {"cases": {}}
    content["cases"] |= {key(case): recorded(case) for case in cases}
    content["cases"] = dict(sorted(content["cases"].items()))
    EXPECTED.write_text(json.dumps(content, indent=1) + "\n")


def table(cases: Sequence[Mapping[str, Any]]) -> str:
    """The cases for a reader, in Markdown."""
    columns = (
        "case", "attention", "evaluation", "waits: micro-batch, update", "pageable",
        "peak, plan GB", "kB per token and layer",
        "host ms", "H200 sequences/s predicted",
    )  # fmt: skip
    lines = [columns, ["---"] * len(columns), *map(row, cases)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def row(case: Mapping[str, Any]) -> list[str]:
    """A line of the table."""
    pageable = sum(count for way, count in case["copies"].items() if "pageable" in way)
    return [
        key(case),
        ", ".join(case["attention"]) or "products",
        ", ".join(case["evaluation_attention"]),
        f"{case['waits_per_micro_batch']:g}, {case['waits_per_update']}", f"{pageable:g}",
        f"{case['peak_gb']:.1f}, {case['planned_gb']:.1f}",
        f"{sum(case['kilobytes_per_token_layer'].values()):.1f}", f"{case['host_ms']:.0f}",
        f"{case['predicted_sequences_per_second']['H200']:.0f}",
    ]  # fmt: skip


if __name__ == "__main__":
    main()

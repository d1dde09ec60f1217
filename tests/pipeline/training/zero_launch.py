"""Starts zero_worker.py, once per world size, because every start of DeepSpeed takes seconds.

`python -m tests.pipeline.training.zero_launch` prints the table of
pipeline/training/optimizer/README.md.
"""

import functools
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.launching.process import run
from tests.pipeline.training.zero_settings import WORLD_SIZES

WORKER = Path(__file__).with_name("zero_worker.py")


@functools.cache
def measured(world_size: int, what: str) -> dict[str, Any]:
    """The worker's measurements on `world_size` ranks, and its output; what: see zero_worker.py."""
    ranks = ["-m", "tests.launching.ranks", world_size] if world_size > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "measured.json"
        result = run(
            [sys.executable, *ranks, WORKER, output, what],
            timeout=1200,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            cold=world_size == 1,  # also what DeepSpeed prints during its import
        )
        assert result.returncode == 0, result.stderr
        found: dict[str, Any] = json.loads(output.read_text())
    return found | {"stdout": result.stdout, "stderr": result.stderr}


def table(results: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Distances from the reference, as lines of Markdown."""
    groups: dict[tuple[int, str, int], list[dict[str, Any]]] = {}
    for result in results:
        group = result["world_size"], result["precision"], result["steps"]
        groups.setdefault(group, []).append(result)
    yield "| ranks | precision | steps | runs | largest distance | floors | most, in floors |"
    yield "|---|---|---|---|---|---|---|"
    for (world_size, precision, steps), runs in sorted(groups.items(), key=lambda item: item[0]):
        floors = [run["floor"] for run in runs]
        farthest = max(run["distance"] for run in runs)
        ratio = max(run["distance"] / run["floor"] for run in runs)
        yield (
            f"| {world_size} | {precision} | {steps} | {len(runs)} | {farthest:.1e} | "
            f"{min(floors):.1e} to {max(floors):.1e} | {ratio:.2f} |"
        )


def main() -> None:
    launches = [*(measured(ranks, "whole") for ranks in WORLD_SIZES), measured(2, "drift")]
    print(*table(result for launch in launches for result in launch["exact"]), sep="\n")
    for result in (result for launch in launches for result in launch.get("naive", ())):
        print(f"naive LAMB, {result['world_size']} ranks, stage {result['stage']}: ", end="")
        print(f"distance {result['distance']:.2g}, floor {result['floor']:.1e}")


if __name__ == "__main__":
    main()

"""Runs of every family on one and two ranks at every ZeRO stage, resumed, exported, evaluated.

Losses of 20 steps are recorded to 1e-5; `python -m tests.golden.record --against COMMIT losses/*`
compares them with an older commit on this machine to the bit. bf16 has a tolerance of 2 %, because
processors with AMX or AVX-512 BF16 multiply in another way than others.
"""

import atexit
import functools
import json
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import xxhash
from safetensors.numpy import load_file

from tests.golden import recording
from tests.golden.compare import Case
from tests.golden.recording import EXPORTS, FAMILIES, RUNS, SAVED, command

LAMB = ("--set", "optimizer.kind=lamb", "--set", "optimizer.peak_lr=0.02")
MIXTURE = '[{"corpus": "news", "weight": 3}, {"corpus": "web", "weight": 1}]'
FROM_LIBRARIES = ("transformers_version", "dtype", "torch_dtype")
"""Keys of config.json that transformers writes in its own way in each version."""


@functools.cache
def shards(family: str) -> Path:
    """What a family trains on, prepared once a process."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return recording.lesson(recording.prepared(family, Path(folder) / family))


def losses(family: str, *changes: str, ds: str = "zero1", ranks: int = 1, work: Path) -> Any:
    """Losses and counts of all steps, by name."""
    train(family, work / "run", "--ds", ds, changes=changes, ranks=ranks)
    return by_name(work / "run")


def train(
    family: str, run: Path, *extra: object, changes: tuple[str, ...] = (), ranks: int = 1
) -> None:
    given = recording.run_arguments(family, shards(family), run, *extra)
    command("train", *given, *LAMB, *changes, ranks=ranks)


def by_name(run: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for values in recording.losses(run).values():
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return found


def resumed(family: str, work: Path) -> Any:
    """Half on one rank without ZeRO, half on two ranks at stage 3."""
    train(family, work / "run", "--ds", "zero0", "--stop-at", SAVED)
    train(family, work / "run", "--ds", "zero3", ranks=2)
    return by_name(work / "run")


def exported(family: str, work: Path) -> Any:
    """Hashes of what the recorded run is exported as, and the scores of the recorded export."""
    run, folder = work / "run", work / "export"
    shutil.copytree(RUNS / family, run)
    command("export", run, "--data", shards(family), "--output", folder)
    scores = json.loads(
        command("evaluate", EXPORTS / family, "--data", shards(family), "--json", "--mask-rate", 0)
    )
    return {
        "files": {
            str(path.relative_to(folder)): _hash(path)
            for path in sorted(folder.rglob("*.*")) if path.name != "README.md"
        },
        "scores": {name: value for name, value in scores.items() if not isinstance(value, str)},
    }  # fmt: skip


def _hash(path: Path) -> str:
    if path.suffix == ".safetensors":
        weights = load_file(path)
        content = b"".join(name.encode() + weights[name].tobytes() for name in sorted(weights))
    else:
        content = path.read_bytes()
        if path.name == "config.json":
            values = json.loads(content)
            kept = {name: value for name, value in values.items() if name not in FROM_LIBRARIES}
            content = json.dumps(kept, sort_keys=True).encode()
    return xxhash.xxh3_64_hexdigest(content)


def _measure(function: Any, *words: Any, **options: Any) -> Any:
    return lambda work: function(*words, **options, work=work)


CASES = [
    *(Case(f"export/{family}", partial(exported, family), tolerance=1e-5) for family in FAMILIES),
    Case("losses_by_layout/roberta mixture",
         _measure(losses, "roberta", "--set", f"batch.mixture={MIXTURE}"), tolerance=1e-5),
]  # fmt: skip

"""Runs of every family on one and two ranks at every ZeRO stage, resumed, exported, evaluated.

Losses of 20 steps are recorded to 1e-5; `python -m tests.golden.record --against COMMIT
'losses_by_layout/*'` compares them with an older commit on this machine to the bit.
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
LAYOUTS = [(ranks, f"zero{stage}") for ranks in (1, 2) for stage in range(4)]
"""Ranks and stage of ZeRO."""
LAID_OUT = ("roberta", "bert", "albert", "electra", "spanbert", "modernbert")
"""Families that are recorded for every layout."""
MIXTURE = '[{"corpus": "news", "weight": 3}, {"corpus": "web", "weight": 1}]'
FROM_LIBRARIES = ("transformers_version", "dtype", "torch_dtype")
"""Keys of config.json that transformers writes in its own way in each version."""


@functools.cache
def shards(family: str) -> Path:
    """What a family trains on, prepared once a process."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return recording.lesson(recording.prepared(family, Path(folder) / family))


def mixed(work: Path) -> Any:
    """Losses and counts of all steps, by name, with a weight for each corpus."""
    train("roberta", work / "run", "--ds", "zero1", "--set", f"batch.mixture={MIXTURE}")
    return by_name(work / "run")


def laid_out(family: str, work: Path) -> Any:
    """Losses of all steps, by layout; resumed: half on one rank without ZeRO, half on two ranks at
    stage 3. Parts of the losses are in `losses`."""
    found = {}
    for ranks, stage in LAYOUTS:
        run = work / f"{ranks}-{stage}"
        train(family, run, "--ds", stage, ranks=ranks)
        found[f"ranks={ranks} {stage}"] = by_name(run)
    train(family, work / "resumed", "--ds", "zero0", "--stop-at", SAVED)
    train(family, work / "resumed", "--ds", "zero3", ranks=2)
    found["resumed"] = by_name(work / "resumed")
    return {
        layout: {name: values[name] for name in ("loss", "validation_loss")}
        for layout, values in found.items()
    }


def train(family: str, run: Path, *extra: object, ranks: int = 1) -> None:
    given = recording.run_arguments(family, shards(family), run, *extra)
    command("train", *given, *LAMB, ranks=ranks)


def by_name(run: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for values in recording.losses(run).values():
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return found


def exported(family: str, work: Path) -> Any:
    """Hashes of what the recorded run is exported as, and the scores of the recorded export."""
    run, folder = work / "run", work / "export"
    shutil.copytree(RUNS / family, run)
    command("export", run, "--data", shards(family), "--output", folder)
    return {
        "files": {
            str(path.relative_to(folder)): _hash(path)
            for path in sorted(folder.rglob("*.*")) if path.name != "README.md"
        },
        "scores": {name: value for name, value in scores(family).items() if "auc" not in name},
    }  # fmt: skip


def scores(family: str) -> dict[str, float]:
    """Of the recorded export on held-out rows."""
    words = (EXPORTS / family, "--data", shards(family), "--json", "--mask-rate", 0)
    found = json.loads(command("evaluate", *words))
    return {name: value for name, value in found.items() if not isinstance(value, str)}


def ranked(work: Path) -> Any:
    """Areas under ELECTRA's curves, which change when last bits order two scores another way."""
    return {name: value for name, value in scores("electra").items() if "auc" in name}


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


CASES = [
    *(Case(f"export/{family}", partial(exported, family), tolerance=1e-5) for family in FAMILIES),
    Case("export/electra areas", ranked, tolerance=1e-3),
    *(Case(f"losses_by_layout/{family}", partial(laid_out, family), slow=True, tolerance=1e-5)
      for family in LAID_OUT),
    Case("losses_by_layout/roberta mixture", mixed, tolerance=1e-5),
]  # fmt: skip

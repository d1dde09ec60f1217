"""Versions that must be the same on all ranks, without importing what they are of."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path

import xxhash

from pipeline.diagnosis.checks import FAIL, WARN, Check, judge
from pipeline.kernels.cache import kernel_directory

DECISIVE = ("code", "python", "torch", "deepspeed", "numpy", "pyarrow", "safetensors", "driver")
"""Ranks that differ in one of these stop, or compute or read different things."""
_ROOT = Path(__file__).parents[2]


def find_versions() -> dict[str, str]:
    """Versions by name; `code` and `packages` are hashes of all sources and packages."""
    installed: dict[str, str] = {}
    for distribution in distributions():  # the first on the path is the one that is imported
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        installed.setdefault(name, distribution.version)
    names = {"torch", "deepspeed", "numpy", "numba", "pyarrow", "safetensors", "tokenizers"}
    # CUDA's libraries, as torch installs them
    names |= {name for name in installed if name.startswith("nvidia-")}
    found = {name: installed[name] for name in sorted(names & installed.keys())}
    every = "\n".join(f"{name}=={version}" for name, version in sorted(installed.items()))
    # the last part of its path is a hash of the sources
    code = "".join(kernel_directory(_ROOT / folder).name for folder in ("pipeline", "model"))
    return {
        "python": platform.python_version(),
        "code": xxhash.xxh3_64_hexdigest(code.encode()),
        **found,
        "packages": xxhash.xxh3_64_hexdigest(every.encode()),
    }


def compare_versions(found: Sequence[Mapping[str, str]]) -> Check:
    """Check that all ranks have the same versions; found: those of each rank."""
    names = list(dict.fromkeys(name for versions in found for name in versions))
    differing = {}
    for name in names:
        values = [versions.get(name, "none") for versions in found]
        usual, count = Counter(values).most_common(1)[0]  # the majority counts as right
        if count < len(values):
            others = [rank for rank, value in enumerate(values) if value != usual]
            differing[name] = (
                f"{name} is {values[others[0]]} on rank {others[0]}"
                + (f" and {len(others) - 1} more" if len(others) > 1 else "")
                + f", {usual} on the others"
            )
    if not differing:
        # the first is a hash, which says nothing to a reader
        shown = [f"{name} {found[0][name]}" for name in DECISIVE[1:] if name in found[0]]
        return judge("versions", ", ".join(shown), "")
    decisive = [name for name in DECISIVE if name in differing]
    named = decisive or list(differing)
    return judge(
        "versions", "; ".join(differing[name] for name in named), FAIL if decisive else WARN,
        "the same on all ranks", "use one venv or image that all nodes see",
    )  # fmt: skip

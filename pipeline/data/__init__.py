"""Raw text to shards to batches, one file a stage.

Compiled kernels are kept between runs. To tell whether a kernel changed, numba looks at its file
alone, not at the files of what it calls, so an update could run old code: kernels are kept under a
hash of this whole package instead. `NUMBA_CACHE_DIR` moves them, unhashed.
"""

from __future__ import annotations

import os
from pathlib import Path

import numba
import xxhash


def _kernel_directory() -> Path:
    digest = xxhash.xxh3_64()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "tenfold" / f"kernels-{digest.hexdigest()}"


if not numba.config.CACHE_DIR:  # type: ignore[attr-defined]
    numba.config.CACHE_DIR = str(_kernel_directory())  # type: ignore[attr-defined]

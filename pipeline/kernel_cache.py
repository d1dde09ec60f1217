"""Where compiled kernels are kept between runs, and the line that announces their compilation.

To tell whether a kernel changed, numba looks at the kernel's own file, not at the files of what it
calls, so an update could run old code. Kernels are therefore kept under a hash of all of
`pipeline/`. `NUMBA_CACHE_DIR` moves them, unhashed. Packages with kernels import this module first.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numba
import xxhash
from numba.core import event


def kernel_directory(code: Path) -> Path:
    """The directory for kernels compiled from the Python files below `code`."""
    digest = xxhash.xxh3_64()
    for path in sorted(code.rglob("*.py")):
        digest.update(path.relative_to(code).as_posix().encode())
        digest.update(path.read_bytes())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "tenfold" / f"kernels-{digest.hexdigest()}"


class FirstCompilation(event.Listener):
    """Announces, once and on a terminal, that kernels are compiled, since that takes a while."""

    announced = False

    def on_start(self, event: event.Event) -> None:
        """Called when numba compiles a function, not when it loads one."""
        if not self.announced and sys.stderr.isatty():
            print(
                "compiling kernels for this processor: up to a minute, the first time only",
                file=sys.stderr,
                flush=True,
            )
        self.announced = True

    def on_end(self, event: event.Event) -> None:
        """Nothing to say: progress follows."""


if not numba.config.CACHE_DIR:  # type: ignore[attr-defined]
    numba.config.CACHE_DIR = str(kernel_directory(Path(__file__).parent))  # type: ignore[attr-defined]
event.register("numba:compile", FirstCompilation())  # type: ignore[no-untyped-call]

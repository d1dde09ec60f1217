"""The cache of compiled kernels, and the line that announces their compilation.

numba recompiles a kernel if the kernel's file has changed, but not if the file of a function it
calls has: after an update it could run old code. Kernels are therefore cached under a hash of all
of `pipeline/`. `NUMBA_CACHE_DIR` replaces the directory, without a hash. Packages with kernels
import this module first.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numba
import xxhash
from numba.core import event


def kernel_directory(code: Path) -> Path:
    """The cache directory for kernels compiled from the Python files below `code`."""
    digest = xxhash.xxh3_64()
    for path in sorted(code.rglob("*.py")):
        digest.update(path.relative_to(code).as_posix().encode())
        digest.update(path.read_bytes())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "tenfold" / f"kernels-{digest.hexdigest()}"


class FirstCompilation(event.Listener):
    """Announces the compilation of kernels once."""

    announced = False

    def announce(self) -> None:
        """Print the line unless it was printed before."""
        if not self.announced:
            print(
                "compiling kernels for this processor: about a minute, the first time only",
                file=sys.stderr,
                flush=True,
            )
        self.announced = True

    def on_start(self, event: event.Event) -> None:
        """Called when numba compiles a function, not when it loads a compiled one."""
        if sys.stderr.isatty():
            self.announce()

    def on_end(self, event: event.Event) -> None:
        """Required by numba; prints nothing."""


if not numba.config.CACHE_DIR:  # type: ignore[attr-defined]
    numba.config.CACHE_DIR = str(kernel_directory(Path(__file__).parent))  # type: ignore[attr-defined]
FIRST_COMPILATION = FirstCompilation()
"""This process's announcement."""
event.register("numba:compile", FIRST_COMPILATION)  # type: ignore[no-untyped-call]

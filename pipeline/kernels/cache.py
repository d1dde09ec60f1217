"""The cache of compiled kernels, and the line that announces their compilation.

numba recompiles a kernel if the kernel's file has changed, but not if the file of a function it
calls has: after an update it could run old code. Kernels are therefore cached under a hash of all
of `pipeline/`. `NUMBA_CACHE_DIR` replaces the directory, without a hash. Packages with kernels
import this module first.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import numba
import xxhash
from numba.core import event

from pipeline.base.errors import ConfigError, run_command
from pipeline.base.private_directories import own_directory, own_temporary_directory
from pipeline.base.progress import note


def kernel_directory(code: Path) -> Path:
    """The cache directory for kernels compiled from the Python files below `code`."""
    digest = xxhash.xxh3_64()
    for path in sorted(code.rglob("*.py")):  # rglob's order is the file system's
        digest.update(path.relative_to(code).as_posix().encode())
        digest.update(path.read_bytes())
    return caches() / f"kernels-{digest.hexdigest()}"


def caches() -> Path:
    """Directory of all caches of Tenfold, below `XDG_CACHE_HOME` or the home directory."""
    return _cache_home() / "tenfold"


def _cache_home() -> Path:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home directory
        return own_temporary_directory("tenfold")


def set_kernel_cache() -> None:
    """Let numba keep kernels in a directory that only this user can change.

    Falls back to a temporary directory if the usual one cannot be written. Raises ConfigError if
    others can change it.
    """
    given = str(numba.config.CACHE_DIR)  # type: ignore[attr-defined]
    wanted = Path(given) if given else kernel_directory(Path(__file__).parents[1])
    variable = "NUMBA_CACHE_DIR" if given else "XDG_CACHE_HOME"
    numba.config.CACHE_DIR = str(_writable(wanted, variable))  # type: ignore[attr-defined]


def set_torch_caches() -> None:
    """As `set_kernel_cache`, for Inductor, Triton and extensions; call it before compiling a model.

    Inductor's own default is a directory in /tmp with a name that can be guessed. Extensions stay
    in torch's directory, which has a folder per version.
    """
    for variable, name in (("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton")):
        wanted = Path(os.environ.get(variable) or caches() / name)
        # In the environment, where torch and the processes that it starts look.
        os.environ[variable] = str(_writable(wanted, variable))
    extensions = os.environ.get("TORCH_EXTENSIONS_DIR") or _cache_home() / "torch_extensions"
    with contextlib.suppress(OSError):  # cannot be made, and so holds nothing to run
        own_directory(Path(extensions), "TORCH_EXTENSIONS_DIR")


def _writable(wanted: Path, variable: str) -> Path:
    """`wanted`, made and checked; one among the temporary files if it cannot be written."""
    try:
        directory = own_directory(wanted, variable)
        if os.access(directory, os.W_OK):  # what is there may be read-only
            return directory
    except OSError:  # no home directory, or a read-only one
        pass
    try:
        return own_temporary_directory(f"tenfold-{wanted.name}")
    except OSError as error:
        raise ConfigError(
            f"compiled code can be kept neither in {wanted} nor among the temporary files "
            f"({error}); set {variable} to a directory that you can write to"
        ) from error


class FirstCompilation(event.Listener):
    """Announces the compilation of kernels once."""

    announced = False

    def announce(self) -> None:
        """Print the line unless it was printed before."""
        if not self.announced:
            note("compiling kernels for this processor: about a minute, the first time only")
        self.announced = True

    def on_start(self, event: event.Event) -> None:
        """Called when numba compiles a function, not when it loads a compiled one."""
        if sys.stderr.isatty():
            self.announce()

    def on_end(self, event: event.Event) -> None:
        """Required by numba; prints nothing."""


run_command(set_kernel_cache)  # numba reads the first kernel when its module is imported
FIRST_COMPILATION = FirstCompilation()
"""This process's announcement."""
event.register("numba:compile", FIRST_COMPILATION)  # type: ignore[no-untyped-call]

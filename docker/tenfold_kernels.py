"""The image's compiled kernels, for any user who runs it.

Numba compiles a kernel when it is first called, more than a minute for all of them, and caches it
in a directory that it must be able to write. The image's own is read-only for most users: another
user id, Apptainer, a read-only root. So the image's kernels are copied, once, to a directory that
this process can write: the configured one (`NUMBA_CACHE_DIR`, `XDG_CACHE_HOME`, the home
directory), or else a private one among the temporary files.

The image names this class in NUMBA_CACHE_LOCATOR_CLASSES, where numba looks for cache locators.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from numba.core.caching import UserProvidedCacheLocator

SHIPPED = Path(__file__).with_name("kernels")


class Kernels(UserProvidedCacheLocator):
    """Kernels of one source file: those shipped in the image, and those compiled since."""

    def ensure_cache_path(self) -> None:
        """Make the directory, with the image's kernels in it; elsewhere if that fails."""
        directory = Path(self._cache_path)
        try:
            seed(directory)
            super().ensure_cache_path()
        except OSError:
            directory = private_directory() / directory.parent.name / directory.name
            self._cache_path = str(directory)
            seed(directory)
            super().ensure_cache_path()


def seed(directory: Path) -> None:
    """Copy the image's kernels of this name to `directory`, unless it exists."""
    shipped = SHIPPED / directory.name
    if directory.exists() or not shipped.is_dir():
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    copy = Path(tempfile.mkdtemp(prefix=".kernels-", dir=directory.parent))
    try:
        shutil.copytree(shipped, copy, dirs_exist_ok=True)
        copy.rename(directory)
    except OSError:
        shutil.rmtree(copy, ignore_errors=True)
        if not directory.is_dir():  # else another process of this job was faster
            raise


def private_directory() -> Path:
    """A directory of this user among the temporary files; numba runs the code in it."""
    directory = Path(tempfile.gettempdir()) / f"tenfold-kernels-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    status = directory.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022 or directory.is_symlink():
        raise PermissionError(f"{directory} belongs to, or can be changed by, another user")
    return directory

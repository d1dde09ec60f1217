"""The image's compiled kernels, for any user who runs it.

Numba compiles a kernel when it is first called, more than a minute for all of them, and caches it
in a directory that it must be able to write. The image's own is read-only for most users: another
user id, Apptainer, a read-only root. So the image's kernels are copied, once, to the directory that
`pipeline.kernels.cache` has chosen: one that only this user can write.

The image names this class in NUMBA_CACHE_LOCATOR_CLASSES, where numba looks for cache locators.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from numba.core.caching import UserProvidedCacheLocator

SHIPPED = Path(__file__).with_name("kernels")


class Kernels(UserProvidedCacheLocator):
    """Kernels of one source file: those shipped in the image, and those compiled since."""

    def ensure_cache_path(self) -> None:
        """Make the directory, with the image's kernels in it."""
        seed(Path(self._cache_path))  # first: a directory that exists is not seeded
        super().ensure_cache_path()


def seed(directory: Path) -> None:
    """Copy the image's kernels of this name to `directory`, unless it exists."""
    shipped = SHIPPED / directory.name
    if directory.exists() or not shipped.is_dir():
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    # next to it: a rename crosses no disks
    copy = Path(tempfile.mkdtemp(prefix=".kernels-", dir=directory.parent))
    try:
        shutil.copytree(shipped, copy, dirs_exist_ok=True)
        copy.rename(directory)
    except OSError:
        shutil.rmtree(copy, ignore_errors=True)
        if not directory.is_dir():  # else another process of this job was faster
            raise

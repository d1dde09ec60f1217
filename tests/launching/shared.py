"""Folders of a test session, each built once by the first of pytest's workers that needs it."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

WORKER = "PYTEST_XDIST_WORKER"


def build_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], object]) -> Path:
    """The folder `name`, filled by `build`. Other workers wait until it is complete.

    A failed build is tried again by the next test that needs the folder.
    """
    session = factory.getbasetemp()
    if WORKER in os.environ:
        session = session.parent  # each worker has its own folder inside the session's
    folder, done = session / "shared" / name, session / "shared" / f"{name}.done"
    folder.parent.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            if folder.exists():
                shutil.rmtree(folder)  # a build that failed
            folder.mkdir()
            build(folder)
            done.touch()
    return folder

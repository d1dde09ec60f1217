"""Folders of a test session that are built once, whichever of pytest's workers wants them first."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

WORKER = "PYTEST_XDIST_WORKER"


def build_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], object]) -> Path:
    """The folder `name` with what `build` writes into it. Other workers wait until it is whole.

    A build that fails is tried again by the next test that wants the folder.
    """
    session = factory.getbasetemp()
    if WORKER in os.environ:
        session = session.parent  # each worker has a folder of its own inside the session's
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

"""PLACE COUNT COMMAND ARGUMENTS...: a command where locks exclude nobody, as with localflock.

Each process that is about to publish a folder waits in PLACE until COUNT of them are, or ended.
"""

import fcntl
import importlib
import os
import sys
import time
from pathlib import Path

from pipeline.base import publish
from pipeline.base.errors import run_command


def publish_together(place: Path, count: int) -> None:
    """Make `publish_folder` wait for the other processes, the first time."""
    sync = publish._sync_all

    def sync_and_wait(folder: Path) -> None:
        sync(folder)
        (place / str(os.getpid())).touch()
        while len([*place.iterdir()]) < count:
            time.sleep(0.01)

    publish._sync_all = sync_and_wait


if __name__ == "__main__":
    fcntl.flock = lambda *_: None  # type: ignore[assignment]
    publish_together(Path(sys.argv[1]), int(sys.argv[2]))
    own = Path(sys.argv[1], str(os.getpid()))
    module, sys.argv = sys.argv[3], sys.argv[3:]
    try:
        run_command(importlib.import_module(f"pipeline.{module}").main)
    finally:
        own.touch()

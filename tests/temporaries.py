"""What killed processes leave: files under the names that they have until they are whole."""

import os
import subprocess
import sys
from pathlib import Path

from pipeline.base.files import temporary_path


def temporary_of_the_dead(path: Path) -> Path:
    """A temporary path of a process of this machine that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    mine = temporary_path(path)
    return mine.with_name(mine.name.replace(f"-{os.getpid()}.", f"-{process.pid}."))

"""What gpu_gate.py compiled, as one file, so that a later gate on such a GPU spends no time on it.

Torch keeps what it compiled by the code and the device; on other ones the file has no effect. Load
only a file that you wrote: its code runs.
"""

import lzma
from pathlib import Path

import torch

from pipeline.base.files import write_whole


def load_cache(file: Path) -> None:
    """Put the content of a file, if there is one, where torch looks before it compiles."""
    if file.exists():
        torch.compiler.load_cache_artifacts(lzma.decompress(file.read_bytes()))


def save_cache(file: Path) -> None:
    """Write all that this process has compiled or loaded so far."""
    if found := torch.compiler.save_cache_artifacts():
        write_whole(file, lzma.compress(found[0], preset=1))

"""Raised inside a step, in place of a GPU that is too small."""

import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline.base.errors import ConfigError
from pipeline.config.run import Run
from pipeline.config.settings import override
from pipeline.recipes import recipe
from pipeline.training.out_of_memory import reporting_lack_of_memory
from tests.launching import process

RUN = recipe("roberta_tiny")
CUDA = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.10 GiB of "
    "which 1.20 GiB is free."
)


def rank(number: int, said: list[str]) -> Any:
    """A rank of those that share the store `said`."""

    def is_first_to_say(message: str) -> bool:
        said.append(message)
        return said.count(message) == 1

    return SimpleNamespace(
        rank=number, device=torch.device("cuda"), was_said=said.__contains__,
        is_first_to_say=is_first_to_say,
    )  # fmt: skip


def ended(cluster: Any, error: Exception, run: Run = RUN) -> BaseException:
    with pytest.raises(BaseException) as caught, reporting_lack_of_memory(run, cluster):
        raise error
    return caught.value


def test_the_first_rank_reports_and_the_others_exit_silently() -> None:
    said: list[str] = []
    first = ended(rank(3, said), torch.OutOfMemoryError(CUDA))
    assert isinstance(first, ConfigError)
    assert re.fullmatch(
        r"rank 3 on \S+ ran out of GPU memory with batch.per_device=32 \(2.50 GiB more .*; add "
        r"--set batch.per_device=16, which .* zero2, zero3 or zero3_offload; .* last checkpoint",
        str(first),
    )
    for error in (torch.OutOfMemoryError(CUDA), RuntimeError("Connection closed by peer")):
        other = ended(rank(1, said), error)
        assert isinstance(other, SystemExit) and other.code == 2


def test_other_words_for_it_are_known_and_other_errors_pass() -> None:
    for message in (
        "CUDA error: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory: you "
        "tried to allocate 4000000000000 bytes.",
    ):
        assert isinstance(ended(rank(0, []), RuntimeError(message)), ConfigError), message
    error = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    assert ended(rank(0, []), error) is error
    small = override(RUN, ["batch.per_device=1"])  # cannot be halved
    whole = ended(rank(0, []), torch.OutOfMemoryError("CUDA out of memory."), small)
    assert "batch.per_device=1; as it cannot be smaller, share" in str(whole)


HOLES = """
from pathlib import Path
from pipeline.training.out_of_memory import return_free_memory
def held():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6
bytearray(30 << 20)  # from now on the C library keeps what is smaller
start = held()
blocks = [bytearray(b"x") * (1 << 20) for _ in range(300)]
kept = blocks[9::10]
del blocks
before = held() - start
return_free_memory()
print(before, held() - start)
"""


def test_free_memory_between_kept_blocks_is_returned() -> None:
    """300 MB in blocks of one, of which every tenth stays."""
    done = process.run([sys.executable, "-c", HOLES])
    assert done.returncode == 0, done.stderr
    before, after = map(float, done.stdout.split())
    assert before > 250 and after < 60, done.stdout

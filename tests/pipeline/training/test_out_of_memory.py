"""Raised inside a step, in place of a GPU that is too small."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline.base.errors import ConfigError
from pipeline.recipes import recipe
from pipeline.training.out_of_memory import reporting_lack_of_memory
from tests.launching import process

RUN = recipe("roberta_tiny")
CUDA = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.10 GiB of "
    "which 1.20 GiB is free."
)


class Ranks:
    """The store that all ranks share."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def rank(self, number: int) -> Any:
        def is_first_to_say(message: str) -> bool:
            self.said.append(message)
            return self.said.count(message) == 1

        return SimpleNamespace(
            rank=number, device=torch.device("cuda"), was_said=self.said.__contains__,
            is_first_to_say=is_first_to_say,
        )  # fmt: skip


def ended(cluster: Any, error: Exception) -> BaseException:
    with pytest.raises(BaseException) as caught, reporting_lack_of_memory(RUN, cluster):
        raise error
    return caught.value


def test_the_first_rank_reports_and_the_others_exit_silently() -> None:
    ranks = Ranks()
    first = ended(ranks.rank(3), torch.OutOfMemoryError(CUDA))
    assert isinstance(first, ConfigError)
    assert re.fullmatch(
        r"rank 3 on \S+ ran out of GPU memory with batch.per_device=32 \(2.50 GiB more were asked "
        r"for\); add --set batch.per_device=16, which changes no result, or share more with --ds "
        r"zero2, zero3 or zero3_offload; the same command then resumes from the last checkpoint",
        str(first),
    )
    for error in (torch.OutOfMemoryError(CUDA), RuntimeError("Connection closed by peer")):
        other = ended(ranks.rank(1), error)
        assert isinstance(other, SystemExit) and other.code == 2


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory: you "
        "tried to allocate 4000000000000 bytes.",
    ],
)
def test_other_words_for_it(message: str) -> None:
    assert isinstance(ended(Ranks().rank(0), RuntimeError(message)), ConfigError)


def test_other_errors_pass() -> None:
    error = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    assert ended(Ranks().rank(0), error) is error


def test_one_row_cannot_be_halved() -> None:
    small = SimpleNamespace(batch=SimpleNamespace(per_device=1))
    with (
        pytest.raises(ConfigError, match=r"batch.per_device=1; as it cannot be smaller, share"),
        reporting_lack_of_memory(small, Ranks().rank(0)),  # type: ignore[arg-type]
    ):
        raise torch.OutOfMemoryError("CUDA out of memory.")


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

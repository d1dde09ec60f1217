"""A rank that runs out of memory -> one line for all ranks, which names the setting to change.

And what keeps a CPU from it: flat tokens have another number in each step, so freed tensors leave
holes in the C library's heap that the next ones do not fit in. Without `return_free_memory` the
heap of a mini grows by 250 MB in 100 steps, and uses no more of it than before.
"""

from __future__ import annotations

import ctypes
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.base.errors import EXIT_USER_ERROR, ConfigError
from pipeline.cluster.ranks import Cluster
from pipeline.config.run import Run

LACK = re.compile("out of memory|can't allocate memory|CUBLAS_STATUS_ALLOC_FAILED", re.IGNORECASE)
"""Messages of torch, CUDA, NCCL and the allocator of the CPU; all raise a RuntimeError."""
_SAID = "out-of-memory"
STEPS_BETWEEN_RETURNS = 100
"""Steps on a CPU after which free memory is returned: a few tenths of a second."""


@contextmanager
def reporting_lack_of_memory(run: Run, cluster: Cluster) -> Iterator[None]:
    """A rank that runs out of memory inside ends with a ConfigError; the other ranks exit silently.

    Not collective: ranks that have enough memory wait for this one elsewhere, and lose it.
    """
    try:
        yield
    except RuntimeError as error:
        lacks = LACK.search(str(error))
        # A rank that has enough memory fails by losing the one that ran out of it.
        if not lacks and not cluster.was_said(_SAID):
            raise
        if not lacks or not cluster.is_first_to_say(_SAID):
            raise SystemExit(EXIT_USER_ERROR) from None
        raise ConfigError(_explain(run, cluster, str(error))) from error


def _explain(run: Run, cluster: Cluster, message: str) -> str:
    """The line about a lack of memory; message: the error's."""
    asked = re.search(r"[Tt]ried to allocate ([\d.]+ \w+)", message)
    amount = f" ({asked[1]} more were asked for)" if asked else ""
    rows = run.batch.per_device
    # A step then has more micro-batches, and the same sums.
    advice = f"add --set batch.per_device={rows // 2}, which changes no result, or"
    if rows == 1:
        advice = "as it cannot be smaller,"
    return (
        f"rank {cluster.rank} on {socket.gethostname()} ran out of {_device(cluster)} memory with "
        f"batch.per_device={rows}{amount}; {advice} share more with --ds zero2, zero3 or "
        "zero3_offload; the same command then resumes from the last checkpoint"
    )


def _device(cluster: Cluster) -> str:
    return "GPU" if cluster.device.type == "cuda" else "main"


def return_free_memory() -> None:
    """Give the free pages inside the heap back to the system, where the C library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
    if trim:
        trim(0)

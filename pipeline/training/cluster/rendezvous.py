"""The store through which the ranks find each other; each start of a run gets an empty one.

A launcher that restarts ranks (torchrun --max-restarts) may keep the store of the previous ranks,
with the addresses of processes that have ended. So the ranks of each start agree on a new name and
use it as the prefix of all their keys.
"""

from __future__ import annotations

import time
import uuid
from datetime import timedelta

from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

POLL_SECONDS = 0.02


def fresh_store(timeout: timedelta) -> tuple[Store, int, int]:
    """The store that the launcher's variables name, this rank, and the number of ranks."""
    store, rank, world_size = next(rendezvous("env://", timeout=timeout))
    store.set_timeout(timeout)
    name = common_name(store, rank, world_size, timeout)
    return PrefixStore(name, store), rank, world_size


def common_name(store: Store, rank: int, world_size: int, timeout: timedelta) -> str:
    """The same new name on all ranks of this start. Collective.

    Each rank asks under a unique name, which no earlier start can have answered. The first rank
    answers every question, also of processes that have ended, until all ranks have the answer.
    """
    own = uuid.uuid4().hex
    if rank:
        store.set(f"asks-{rank}", own)
        name = str(store.get(f"answer-{own}").decode())
        store.add(f"heard-{name}", 1)
        return name
    answered: dict[int, str] = {}
    until = time.monotonic() + timeout.total_seconds()
    while store.add(f"heard-{own}", 0) < world_size - 1:
        for other in range(1, world_size):
            if store.check([f"asks-{other}"]):
                asker = store.get(f"asks-{other}").decode()
                if answered.get(other) != asker:
                    store.set(f"answer-{asker}", own)
                    answered[other] = asker
        if time.monotonic() > until:
            missing = sorted(set(range(1, world_size)) - set(answered))
            raise TimeoutError(f"ranks {missing or 'that were answered'} did not join")
        time.sleep(POLL_SECONDS)
    return own

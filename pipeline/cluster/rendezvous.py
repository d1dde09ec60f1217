"""The store through which the ranks find each other; each start of a run gets an empty one.

A launcher that restarts ranks (torchrun --max-restarts) may keep the store of the previous ranks,
with the addresses of processes that have ended. So the ranks of each start agree on a new name and
use it as the prefix of all their keys.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Collection
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

POLL_SECONDS = 0.02
SECONDS_BETWEEN_LINES = 30.0
MOST_NAMED = 8
"""Most ranks that a message names; the others are counted."""


class MissingRanks(RuntimeError):
    """Some ranks did not start in time, or ended before all had started."""


def fresh_store(join_timeout: timedelta, timeout: timedelta) -> tuple[Store, int, int]:
    """The store that the launcher's variables name, this rank, and the number of ranks.

    join_timeout: for all ranks to start; timeout: for anything after that. Raises MissingRanks.
    """
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    held_by_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    try:
        store = TCPStore(
            host,
            port,
            is_master=rank == 0 and not held_by_agent,  # torchrun's agent has the port already
            timeout=join_timeout,
            wait_for_workers=False,  # it would not say who is missing
            multi_tenant=True,
        )
        name = common_name(store, rank, world_size, join_timeout)
    except dist.DistError as error:
        raise MissingRanks(
            f"rank {rank} of {world_size} got no answer from rank 0 at {host}:{port} within "
            f"{join_timeout.total_seconds():.0f} s"
        ) from error
    # All are here: from now on a wait may be as long as a checkpoint.
    store.set_timeout(timeout)
    return PrefixStore(name, store), rank, world_size


def common_name(store: Store, rank: int, world_size: int, timeout: timedelta) -> str:
    """The same new name on all ranks of this start. Collective.

    Each rank asks under a unique name, which no earlier start can have answered. The first rank
    answers every question, even those of processes that have ended, until all ranks have the
    answer. Meanwhile it prints which ranks it waits for. Raises MissingRanks.
    """
    own = uuid.uuid4().hex
    if rank:
        store.set(f"asks-{rank}", own)
        name = str(store.get(f"answer-{own}").decode())
        store.add(f"heard-{name}", 1)
        return name
    answered: dict[int, str] = {}
    began = said_at = time.monotonic()
    # Adding 0 reads a counter. Until all have read the name, this rank may hold the store.
    while store.add(f"heard-{own}", 0) < world_size - 1:
        for other in range(1, world_size):
            if store.check([f"asks-{other}"]):  # `get` would wait until that rank asks
                asker = store.get(f"asks-{other}").decode()
                # A rank that was restarted meanwhile asks again, under another name.
                if answered.get(other) != asker:
                    store.set(f"answer-{asker}", own)
                    answered[other] = asker
        now, missing = time.monotonic(), set(range(1, world_size)) - set(answered)
        if now - began > timeout.total_seconds():
            raise MissingRanks(
                f"{_words(missing, world_size)} did not start within {now - began:.0f} s"
            )
        if now - said_at > SECONDS_BETWEEN_LINES:
            said_at = now
            print(
                f"waiting for {_words(missing, world_size)} ({now - began:.0f} s)",
                file=sys.stderr,
                flush=True,
            )
        time.sleep(POLL_SECONDS)
    return own


def _words(missing: Collection[int], world_size: int) -> str:
    """`rank(s) 1, 3 of 8`; no numbers if all have asked, as those without an answer are unknown."""
    if not missing:
        return f"ranks of {world_size} that ended while they joined"
    ranks = sorted(missing)
    more = f" and {len(ranks) - MOST_NAMED} more" if len(ranks) > MOST_NAMED else ""
    return f"rank(s) {', '.join(map(str, ranks[:MOST_NAMED]))}{more} of {world_size}"

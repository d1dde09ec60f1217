from __future__ import annotations

import threading
from datetime import timedelta

import pytest
import torch.distributed as dist

from pipeline.training.cluster.rendezvous import common_name

SOON = timedelta(seconds=20)


def meet(store: dist.TCPStore, world_size: int, ranks: list[int]) -> list[str]:
    """The names that ranks, one client of the store each, agree on; failing ranks return none."""
    names: list[str] = []

    def play(rank: int) -> None:
        client = dist.TCPStore("127.0.0.1", store.port, is_master=False, timeout=SOON)
        names.append(common_name(client, rank, world_size, SOON))

    threads = [threading.Thread(target=play, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return names


def test_every_start_has_a_name_of_its_own_in_the_same_store() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=SOON)
    names = []
    for _ in range(3):
        found = meet(store, 4, [3, 1, 0, 2])
        assert len(found) == 4 and len(set(found)) == 1
        names.append(found[0])
    assert len(set(names)) == 3


def test_ranks_that_died_before_all_joined_do_no_harm() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=SOON)
    store.set("asks-1", "a dead rank")
    store.set("asks-2", "another dead rank")
    assert len(set(meet(store, 3, [0, 1, 2]))) == 1


def test_waiting_is_bounded() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=SOON)
    with pytest.raises(TimeoutError, match=r"ranks \[1, 2\] did not join"):
        common_name(store, 0, 3, timedelta(seconds=0.2))


def test_alone() -> None:
    store = dist.HashStore()
    assert common_name(store, 0, 1, SOON) != common_name(store, 0, 1, SOON)

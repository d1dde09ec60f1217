from __future__ import annotations

import threading
from datetime import timedelta

import pytest
import torch.distributed as dist

from pipeline.cluster import rendezvous
from pipeline.cluster.rendezvous import MissingRanks, common_name

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


def test_waiting_is_bounded_and_says_for_whom(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rendezvous, "SECONDS_BETWEEN_LINES", 0.05)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=SOON)
    store.set("asks-1", "a rank that is here")
    with pytest.raises(MissingRanks, match=r"^rank\(s\) 2, 3 of 4 did not start within \d+ s$"):
        common_name(store, 0, 4, timedelta(seconds=0.2))
    assert capsys.readouterr().err.startswith("waiting for rank(s) 2, 3 of 4 (0 s)\n")
    with pytest.raises(MissingRanks, match=r"rank\(s\) 1, 2, .*, 8 and 991 more of 1000 did not"):
        common_name(dist.HashStore(), 0, 1000, timedelta(seconds=0.05))


@pytest.mark.parametrize("rank_0_is_there", [True, False])
def test_a_rank_without_an_answer_names_the_first_rank(
    monkeypatch: pytest.MonkeyPatch, rank_0_is_there: bool
) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=SOON)
    port = store.port
    if not rank_0_is_there:
        del store
    variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    for name, value in (variables | {"MASTER_PORT": str(port)}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(MissingRanks, match=rf"rank 1 of 2 got no answer from rank 0 at .*:{port} "):
        rendezvous.fresh_store(timedelta(seconds=1), SOON)


def test_alone() -> None:
    store = dist.HashStore()
    assert common_name(store, 0, 1, SOON) != common_name(store, 0, 1, SOON)

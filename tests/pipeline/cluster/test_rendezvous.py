import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch.distributed as dist

from pipeline.cluster import rendezvous
from pipeline.cluster.rendezvous import MissingRanks, common_name

SOON = timedelta(seconds=20)


@pytest.fixture
def store() -> dist.TCPStore:
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=SOON)


def meet(store: dist.TCPStore, world_size: int) -> list[str]:
    """The names that ranks, one client of the store each, agree on."""

    def play(rank: int) -> str:
        client = dist.TCPStore("127.0.0.1", store.port, is_master=False, timeout=SOON)
        return common_name(client, rank, world_size, SOON)

    with ThreadPoolExecutor(world_size) as pool:
        return [*pool.map(play, range(world_size))]


def test_every_start_has_a_name_of_its_own_in_the_same_store(store: dist.TCPStore) -> None:
    """Ranks that died before all joined do no harm."""
    store.set("asks-1", "a dead rank")
    store.set("asks-2", "another dead rank")
    starts = [meet(store, 4) for _ in range(3)]
    assert [len(names) for names in starts] == [4] * 3
    assert [len(set(names)) for names in starts] == [1] * 3
    assert len({names[0] for names in starts}) == 3
    alone = dist.HashStore()
    assert common_name(alone, 0, 1, SOON) != common_name(alone, 0, 1, SOON)


def test_waiting_is_bounded_and_says_for_whom(
    store: dist.TCPStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rendezvous, "SECONDS_BETWEEN_LINES", 0.05)
    store.set("asks-1", "a rank that is here")
    with pytest.raises(MissingRanks, match=r"^rank\(s\) 2, 3 of 4 did not start within \d+ s$"):
        common_name(store, 0, 4, timedelta(seconds=0.2))
    assert capsys.readouterr().err.startswith("waiting for rank(s) 2, 3 of 4 (0 s)\n")
    with pytest.raises(MissingRanks, match=r"rank\(s\) 1, 2, .*, 8 and 991 more of 1000 did not"):
        common_name(dist.HashStore(), 0, 1000, timedelta(seconds=0.05))


def test_a_rank_without_an_answer_names_the_first_rank(
    store: dist.TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the first rank is there or not."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        ports = [store.port, unused.getsockname()[1]]
    for port in ports:
        variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        for name, value in (variables | {"MASTER_PORT": str(port)}).items():
            monkeypatch.setenv(name, value)
        match = rf"rank 1 of 2 got no answer from rank 0 at .*:{port} "
        with pytest.raises(MissingRanks, match=match):
            rendezvous.fresh_store(timedelta(seconds=1), SOON)

"""Ranks meet through sockets; those that do not come are named, strangers are not let in."""

import socket
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from pipeline.diagnosis import exchange
from pipeline.diagnosis.checks import FAIL, OK, WARN
from pipeline.diagnosis.exchange import Exchange, LostRanks, check_clocks
from pipeline.diagnosis.own_rank import LaunchPlace
from tests.pipeline.diagnosis.conftest import Together


def test_values_reach_rank_0_and_come_back(together: Together) -> None:
    def talk(ranks: Exchange) -> tuple[list[int], int]:
        found = ranks.gather(ranks.placement.rank**2)
        ranks.barrier()
        return found, ranks.broadcast(sum(found))

    assert together(talk, ranks=4) == [([0, 1, 4, 9], 14), ([], 14), ([], 14), ([], 14)]


def test_a_missing_rank_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "JOIN_SECONDS", 0.3)
    for rank, lost in enumerate((r"ranks 1, 2 did not", r"rank 1 on .* cannot reach rank 0 at")):
        place = LaunchPlace(rank=rank, world_size=3, address="127.0.0.1", token=uuid4().hex)
        with pytest.raises(LostRanks, match=lost):
            Exchange(place)


def test_who_does_not_know_the_token_is_not_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "JOIN_SECONDS", 4.0)
    token = uuid4().hex
    place = LaunchPlace(rank=0, world_size=2, address="127.0.0.1", token=token)
    pool = ThreadPoolExecutor(1)
    waiting = pool.submit(Exchange, place)
    answers: list[bytes] = []
    while not answers and not waiting.done():  # until it listens
        for port in exchange._ports(token):
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=3) as stranger:
                    content = b'["guess", 1]'
                    stranger.sendall(len(content).to_bytes(4, "big") + content)
                    answers.append(stranger.recv(10))
            except ConnectionResetError:
                answers.append(b"")
            except OSError:
                continue
    with pool, pytest.raises(LostRanks, match="rank 1 did not answer"):
        waiting.result()
    assert answers and not any(answers)


def test_a_rank_that_ends_is_named(together: Together) -> None:
    def leave(ranks: Exchange) -> str:
        if ranks.placement.rank == 1:
            return "left"
        with pytest.raises(LostRanks, match="rank 1 ended"):
            ranks.gather(0)
        return "named"

    assert together(leave) == ["named", "left"]


def test_clocks(together: Together) -> None:
    offsets, other = together(Exchange.clock_offsets)
    assert offsets[0] == 0 and abs(offsets[1]) < 0.5 and other == []
    assert check_clocks([0.0]) == []
    for offsets, status in (([0.0, 0.1], OK), ([0.0, -2.5], WARN), ([0.0, 0.2, 3600.0], FAIL)):
        (check,) = check_clocks(offsets)
        assert check.status == status
    assert check.value == "rank 2 is +3600.000 s from rank 0"

"""Several ranks in one process: each a thread with its own exchange."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from pipeline.diagnosis.exchange import Exchange
from pipeline.diagnosis.own_rank import LaunchPlace

Together = Callable[..., list[Any]]


@pytest.fixture
def together() -> Together:
    """Runs a function as every rank; each rank is a node of its own."""

    def run(function: Callable[[Exchange], Any], ranks: int = 2) -> list[Any]:
        token = uuid4().hex

        def as_rank(rank: int) -> Any:
            place = LaunchPlace(rank=rank, world_size=ranks, address="127.0.0.1", token=token)
            with Exchange(place) as exchange:
                return function(exchange)

        with ThreadPoolExecutor(ranks) as pool:
            return list(pool.map(as_rank, range(ranks)))

    return run

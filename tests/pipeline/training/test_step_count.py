import socket
import time
from typing import Any

import pytest
import torch.multiprocessing as multiprocessing

from pipeline.loading.micro_batch import LossCounts
from pipeline.training.step_count import StepCount


def test_one_process_needs_no_collective() -> None:
    count = StepCount()
    count.start(LossCounts(7, 40, 2))
    count.start(LossCounts(630_784, 4_194_304, 0), stop=True, loss=1 << 51)
    assert count.result() == (LossCounts(7, 40, 2), False, 0, 1)
    assert count.result() == (LossCounts(630_784, 4_194_304, 0), True, 1 << 51, 1)


def count_on_rank(rank: int, port: int, results: Any) -> None:
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", port, 2, rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    count = StepCount()
    count.start(LossCounts(100 + rank, 800, 3))
    found = []
    for step in range(1, 4):
        counts = LossCounts(step * (10**9 + rank), 1 << 40, rank)
        stop, most = step == 2 and rank == 1, 10 * step if rank == step % 2 else 9
        count.start(counts, stop, step + rank, most)
        found.append(count.result())
    results.put((rank, [*found, count.result()]))
    dist.destroy_process_group()


@pytest.mark.usefixtures("quick_workers")
def test_two_ranks_agree_on_count_and_stop() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [context.Process(target=count_on_rank, args=(rank, port, results)) for rank in (0, 1)]
    for rank in ranks:
        rank.start()
    try:
        found = dict(results.get(timeout=60) for _ in ranks)
    finally:
        deadline = time.monotonic() + 10
        for rank in ranks:
            rank.join(timeout=max(0.0, deadline - time.monotonic()))
            rank.kill()
    expected = [(LossCounts(201, 1600, 6), False, 0, 1)]
    expected += [
        (LossCounts(step * (2 * 10**9 + 1), 1 << 41, 1), step == 2, 2 * step + 1, 10 * step)
        for step in (1, 2, 3)
    ]
    assert found == {0: expected, 1: expected}

import json
from pathlib import Path

from pipeline.loading.micro_batch import LossCounts
from pipeline.training.step_count import StepCount
from tests.pipeline.conftest import forkrun, succeed


def test_one_process_needs_no_collective() -> None:
    count = StepCount()
    count.start(LossCounts(7, 40, 2))
    count.start(LossCounts(630_784, 4_194_304, 0), stop=True, loss=1 << 51)
    assert count.result() == (LossCounts(7, 40, 2), False, 0, 1)
    assert count.result() == (LossCounts(630_784, 4_194_304, 0), True, 1 << 51, 1)


RANK = """
import json
import torch.distributed as dist
from pipeline.loading.micro_batch import LossCounts
from pipeline.training.step_count import StepCount

dist.init_process_group("gloo")
rank = dist.get_rank()
count = StepCount()
count.start(LossCounts(100 + rank, 800, 3))
found = []
for step in range(1, 4):
    counts = LossCounts(step * (10**9 + rank), 1 << 40, rank)
    stop, most = step == 2 and rank == 1, 10 * step if rank == step % 2 else 9
    count.start(counts, stop, step + rank, most)
    found.append(count.result())
print(json.dumps([*found, count.result()]) + "\\n", end="")
dist.destroy_process_group()
"""


def test_two_ranks_agree_on_count_and_stop(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    expected = [(LossCounts(201, 1600, 6), False, 0, 1)]
    expected += [
        (LossCounts(step * (2 * 10**9 + 1), 1 << 41, 1), step == 2, 2 * step + 1, 10 * step)
        for step in (1, 2, 3)
    ]
    assert succeed(*forkrun(script)).stdout.splitlines() == 2 * [json.dumps(expected)]

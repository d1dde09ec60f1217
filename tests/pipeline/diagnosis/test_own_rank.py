"""A rank finds its place from the variables of each launcher."""

import pytest

from pipeline.base.errors import ConfigError
from pipeline.diagnosis.own_rank import find_placement

STEP = {
    "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": "node01,node02",
    "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0",
}  # fmt: skip


TORCHRUN = STEP | {
    "RANK": "0", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "8",
    "MASTER_ADDR": "gpu1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "x",
}  # fmt: skip
"""It and the batch files come before the step."""


def test_the_place_of_each_launcher() -> None:
    assert find_placement({"SLURM_JOB_ID": "7", "SLURM_PROCID": "0"}).world_size == 1
    place = find_placement(STEP)
    assert (place.rank, place.world_size, place.local_rank, place.local_size) == (3, 4, 1, 2)
    assert place.address == "node01" and not place.is_first_on_node
    unequal = find_placement(STEP | {"SLURM_STEP_NUM_TASKS": "5"})
    assert unequal.local_size == 3, "of the larger node"
    place = find_placement(TORCHRUN)
    assert (place.world_size, place.local_size, place.address) == (8, 8, "gpu1")
    assert place.launcher == "torchrun"
    assert place.token != find_placement(TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "1"}).token
    with pytest.raises(ConfigError, match="RANK=x is not a number"):
        find_placement({"RANK": "x", "WORLD_SIZE": "2"})

"""The cluster itself, to rule it out as the cause of other failures."""

from tests.cluster.slurm import Cluster


def test_two_nodes_with_gpus_answer(cluster: Cluster) -> None:
    result = cluster.run("srun", "--nodes=2", "--gres=gpu:3", "sh", "-c",
                         "echo $(hostname) $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES")  # fmt: skip
    assert sorted(result.stdout.splitlines()) == ["node01 node01 0,1,2", "node02 node02 0,1,2"]

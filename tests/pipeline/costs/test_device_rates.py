import pytest

from pipeline.costs.device_rates import GPUS, Hardware, peak_flops_of, rates_of


def machines(nodes: int, nics: int = 8, gpu: str = "h200") -> Hardware:
    return Hardware(device=GPUS[gpu], nodes=nodes, per_node=8, cores=64, nics=nics)


def test_a_gpu_is_found_by_its_drivers_name_and_other_boards_have_a_peak_at_most() -> None:
    for name, gpu, peak in (
        ("NVIDIA H200", "h200", 989e12), ("Tesla V100", None, 0.0),
        ("NVIDIA H100 80GB HBM3", "h100", 989e12), ("NVIDIA A100-SXM4-80GB", "a100", 312e12),
        ("NVIDIA A100-PCIE-40GB", None, 312e12), ("NVIDIA A100 80GB PCIe", None, 312e12),
        ("NVIDIA H100 PCIe", None, 756e12), ("NVIDIA H200 NVL", None, 835e12),
        ("NVIDIA GH200 480GB", None, 989e12), ("NVIDIA B200", None, 2250e12),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None, 0.0), ("NVIDIA GB200", None, 0.0),
    ):  # fmt: skip
        assert rates_of(name) is (GPUS[gpu] if gpu else None)
        assert peak_flops_of(name) == peak


def test_all_reduces_cross_nodes_as_fast_as_their_network_cards() -> None:
    # facts of a cluster with eight cards of 400 Gb/s: 330 GB/s, at 512 GPUs and more 250
    assert machines(8).bus_bandwidth()[1] == pytest.approx(330e9, rel=0.01)
    assert machines(64).bus_bandwidth()[0] == pytest.approx(250e9, rel=0.02)
    assert machines(8, nics=1).bus_bandwidth()[1] == pytest.approx(45e9, rel=0.1)
    assert machines(1, nics=1).bus_bandwidth()[1] > 300e9  # NVLink


def test_rates_are_per_gpu_or_per_core() -> None:
    cpu = Hardware(device=None, nodes=2, per_node=4, cores=16, nics=1)
    assert (machines(2).units, cpu.units, cpu.ranks, cpu.kind) == (16, 32, 8, "cpu")
    assert machines(2).words == "2 nodes x 8 H200"
    assert cpu.words == "2 nodes x 4 ranks on 16 CPU cores"
    for gpu in GPUS.values():  # bands are ordered
        assert list(gpu.utilization) == sorted(gpu.utilization)
        assert gpu.watts[0] < gpu.watts[1]

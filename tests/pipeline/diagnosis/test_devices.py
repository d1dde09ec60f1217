"""GPUs through a stand-in that answers like nvidia-ml-py."""

import inspect
import sys
from pathlib import Path

import pytest

from pipeline.diagnosis import devices
from pipeline.diagnosis.checks import FAIL, OK, SKIPPED, WARN
from pipeline.diagnosis.devices import compare_devices, find_device

STAND_IN = """
NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
NVML_VOLATILE_ECC = 0
class Pci:
    def __init__(self, number): self.busId = f"00000000:{number:02X}:00.0"
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetHandleByUUID(uuid): return int(uuid[-1])
def nvmlDeviceGetPciInfo(handle): return Pci(handle)
def nvmlDeviceGetUUID(handle): return f"GPU-{handle}"
def nvmlDeviceGetName(handle): return "NVIDIA H100"
def nvmlSystemGetDriverVersion(): return "580.1"
def nvmlDeviceGetTotalEccErrors(handle, kind, since): return 3 * handle
def nvmlDeviceGetRemappedRows(handle): return (0, 0, handle, 0)
def nvmlDeviceGetCurrentClocksEventReasons(handle): return 0x40 * handle
"""
"""The second device has errors, pending remaps, and is slowed by heat."""


def use(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pynvml.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(STAND_IN, tmp_path, monkeypatch)


@pytest.mark.usefixtures("nvml")
def test_no_gpu_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node's driver shows no device to a job that asked for none, or all of them."""
    for count, given in ((0, None), (0, "0"), (2, ""), (2, "NoDevFiles"), (2, "-1")):
        monkeypatch.setattr("pynvml.nvmlDeviceGetCount", lambda count=count: count)
        if given is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
        (missed,) = find_device(0, 1, needs_gpu=True)[1]
        assert (missed.status, missed.value) == ("warn", "no GPU given to this job")
        device, (check,) = find_device(0, 32)
        assert check.status == SKIPPED and not device.uuid


def test_a_driver_or_library_that_is_not_there_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library's lack is shown with the name of the extra that brings it."""
    use("def nvmlInit(): raise RuntimeError('not loaded')", tmp_path, monkeypatch)
    device, (check,) = find_device(0, 1)
    assert (check.status, check.value) == (SKIPPED, "no GPU (not loaded)") and not device.uuid
    monkeypatch.setitem(sys.modules, "pynvml", None)  # cannot be imported
    monkeypatch.setattr(devices, "_DRIVER", tmp_path / "none")
    assert find_device(0, 1)[1][0].value == "no GPU"
    monkeypatch.setattr(devices, "_DRIVER", tmp_path)
    (check,) = find_device(0, 1)[1]
    assert check.status == SKIPPED and check.value == devices.LACKING
    assert "pip install '.[gpu]'" in check.value


@pytest.mark.usefixtures("nvml")
def test_fewer_gpus_than_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without CUDA_VISIBLE_DEVICES another job than training may not have asked for any."""
    for given, trains, status in ((None, True, FAIL), (None, False, WARN), ("0,1", False, FAIL)):
        if given:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
        (check,) = find_device(0, 3, is_training=trains)[1]
        assert (check.status, check.value) == (status, "2 visible for 3 ranks")


def test_the_library_has_what_the_stand_in_has() -> None:
    library = pytest.importorskip("pynvml")
    stand_in: dict[str, object] = {}
    exec(STAND_IN, stand_in)
    names = {name for name in stand_in if name.lower().startswith("nvml")}
    assert "nvmlInit" in names
    for name in names:
        theirs, ours = getattr(library, name), stand_in[name]
        if callable(ours):
            mine = list(inspect.signature(ours).parameters)
            assert len(mine) == len(inspect.signature(theirs).parameters), name
        else:
            assert theirs == ours, name


@pytest.mark.usefixtures("nvml")
def test_a_device_and_its_health(monkeypatch: pytest.MonkeyPatch) -> None:
    device, checks = find_device(0, 2)
    assert (device.uuid, device.bus, device.driver) == ("GPU-0", "00000000:00:00.0", "580.1")
    assert {check.status for check in checks} == {OK}
    _, checks = find_device(1, 2)
    assert [check.status for check in checks] == [OK, WARN, WARN, WARN]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1,GPU-0")
    assert find_device(0, 2)[0].uuid == "GPU-1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [check.status for check in find_device(0, 2)[1]] == [FAIL]


def test_two_ranks_on_one_device() -> None:
    rows = [{"uuid": "GPU-0"}, {"uuid": "GPU-1"}, {"uuid": "GPU-0"}]
    assert compare_devices(rows)[0].value == "ranks 0 and 2 both have GPU-0"
    assert compare_devices(rows)[0].status == FAIL
    assert compare_devices(rows[:2])[0].status == OK
    assert compare_devices([{"uuid": ""}]) == []
    differing = [rows[0], {"uuid": ""}]
    assert compare_devices(differing, is_training=True)[0].status == FAIL
    assert compare_devices(differing)[0].status == WARN

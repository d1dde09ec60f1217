"""What the logs of failed ranks say: restart or end, and without which node.

The texts are those of torch 2.4 to 2.13, NCCL 2.20 to 2.28, CUDA 12 and 13, libfabric, gloo, and
srun and torchrun, shortened to the lines that matter.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.shell import bash

ECC = "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"
WATCHDOG = (
    "[rank0]:[E1123 00:11:20.1 ProcessGroupNCCL.cpp:2057] [PG ID 0 PG GUID 0(default_pg) Rank 0] "
    "Process group watchdog thread terminated with exception: "
)
NCCL = "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/"
LOST = (
    "error: rank {rank} on node0{node} lost another rank (NCCL error in: ProcessGroupNCCL.cpp:3356,"
    " remote process exited or there was a network error): look at the last lines of that rank"
)
HUNG = (
    "error: rank {rank} on node0{node} has made no progress for 1800 s and ends; its threads' "
    "stacks follow; run the same command again"
)
TERMINATING = (
    "srun: launch/slurm: _step_signal: Terminating StepId=7.0\n"
    "slurmstepd-node01: error: *** STEP 7.0 ON node01 CANCELLED AT 2026-11-23T00:33:08 ***\n"
)


def task(rank: int, end: str) -> str:
    """srun's line of a rank; ranks 0 and 1 are on node01, 2 and 3 on node02."""
    end = f"Exited with exit code {end}" if end.isdigit() else end
    return f"srun: error: node0{1 + rank // 2}: task {rank}: {end}\n"


def agent(*ends: tuple[int, int]) -> str:
    """torchrun's report of the ranks of a node: (rank, exit code); the first is the root cause."""
    blocks = [
        f"[{number}]:\n  time      : 2026-11-23_00:11:20\n  host      : node0{1 + rank // 2}\n"
        f"  rank      : {rank} (local_rank: {rank % 2})\n  exitcode  : {code} (pid: 4{rank})\n"
        "  error_file: <N/A>\n  traceback : To enable traceback see: https://pytorch.org/docs\n"
        for number, (rank, code) in enumerate(ends)
    ]  # fmt: skip
    line = "=" * 60 + "\n"
    others = "".join(blocks[1:]) or "  <NO_OTHER_FAILURES>\n"
    return (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        f"{line}pipeline.train FAILED\n{line}Failures:\n{others}{line}"
        f"Root Cause (first observed failure):\n{blocks[0]}{line}"
    )


@pytest.fixture
def judge(tmp_path: Path):  # type: ignore[no-untyped-def]
    def judge(log: str, status: int, launcher: str = "srun") -> tuple[str, str, str]:
        (tmp_path / "log").write_text("srun: error: node09: task 0: Killed\n" + log)
        script = (
            f"log={tmp_path}/log log_start=36 status={status} TENFOLD_LAUNCHER={launcher}; judge; "
            'printf "%s|%s|%s" "$verdict" "$failed_node" "$reason"'
        )
        verdict, node, reason = bash(script).split("|")
        return verdict, node, reason

    return judge


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{ECC}\nCUDA kernel errors might be asynchronously reported", "uncorrectable ECC error"),
        ("RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution\n",
         "uncorrectable NVLink error"),
        ("RuntimeError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware "
         "error\n", "hardware error"),
        ("RuntimeError: CUDA error: unspecified launch failure\n", "unspecified launch failure"),
        ("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable\n",
         "busy or unavailable"),
        ("RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions"
         " before calling NumCudaDevices()? Error 802: system not yet initialized\n",
         "Error 802"),
        ("NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the "
         "bus.\nKeyError: 'x'\n", "Xid (PCI:0000:5d:00): 79,"),
        ("NVRM: Xid (PCI:0000:9b:00): 94, pid=4711, name=python, Contained: SM (0x1).\n",
         "Xid (PCI:0000:9b:00): 94,"),
    ],
)  # fmt: skip
def test_a_fault_of_a_device_restarts(text: str, reason: str, judge) -> None:  # type: ignore[no-untyped-def]
    verdict, node, why = judge(f"{text}\n{task(2, '1')}{TERMINATING}{task(0, 'Killed')}", 137)
    assert (verdict, node) == ("restart", "node02")
    assert why.startswith("a device failed on node02: ") and reason in why, why


def test_the_first_rank_that_failed_names_the_node(judge) -> None:  # type: ignore[no-untyped-def]
    """It has an exception; the others are killed or lose it, in any order."""
    for others in (
        task(2, "1") + TERMINATING + task(0, "Killed") + task(1, "Killed"),
        task(2, "1") + TERMINATING + task(0, "137") + task(1, "143"),
        LOST.format(rank=0, node=1) + "\n" + task(0, "70") + TERMINATING + task(2, "1"),
    ):
        assert judge(f"{ECC}\n{others}", 137)[:2] == ("restart", "node02")
    log = f"{ECC}\n{agent((2, 1), (3, -15))}{task(0, '1')}"
    assert judge(log, 1, "torchrun")[:2] == ("restart", "node02")


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: CUDA error: device-side assert triggered\n",
        WATCHDOG + "CUDA error: device-side assert triggered\n",
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has ...\n",
        f"{NCCL}ProcessGroupNCCL.cpp:2021, invalid usage (run with NCCL_DEBUG=WARN for details), "
        "NCCL version 2.21.5\nncclInvalidUsage: This usually reflects invalid usage of NCCL "
        "library.\nLast error:\nDuplicate GPU detected : rank 0 and rank 1 both on CUDA device\n",
        "Traceback (most recent call last):\nKeyError: 'x'\n",
        "AssertionError\n",
        "NVRM: Xid (PCI:0000:9b:00): 31, pid=4711, name=python, MMU Fault: ENGINE GRAPHICS\n"
        "RuntimeError: CUDA error: an illegal memory access was encountered\n",
    ],
)  # fmt: skip
def test_an_error_of_a_program_ends_the_job(text: str, judge) -> None:  # type: ignore[no-untyped-def]
    """Though the survivors are killed, or report what looks like a fault of the network."""
    lost = (
        LOST.format(rank=0, node=1)
        + "\nnode01:41:52 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<5000> with "
        "status=12 opcode=32600 len=0 vendor err 129 (Send)\n"
        "torch.distributed.DistNetworkError: failed to recv, got 0 bytes\n"
    )
    last = TERMINATING + task(0, "Killed")
    assert judge(text + task(2, "1") + last, 137)[:2] == ("end", "")
    assert judge(text + lost + task(2, "1") + task(1, "70") + last, 137)[:2] == ("end", "")
    assert judge(text + agent((2, 1)) + lost + agent((0, 70)), 1, "torchrun")[:2] == ("end", "")
    if "illegal" in text or "assert triggered" in text:
        assert judge(text + task(2, "Aborted (core dumped)") + last, 134)[:2] == ("end", "")


@pytest.mark.parametrize(
    "text",
    [
        f"{NCCL}NCCLUtils.hpp:268, unhandled system error (run with NCCL_DEBUG=INFO for details), "
        "NCCL version 2.20.5\nncclSystemError: System call (e.g. socket, malloc) or external "
        "library call failed or device error. \nLast error:\nsocketStartConnect: Connect to "
        "10.0.0.1<35343> failed : Software caused connection abort\n",
        f"{NCCL}ProcessGroupNCCL.cpp:3356, remote process exited or there was a network error, NCCL"
        " version 2.27.3\nncclRemoteError: A call failed possibly due to a network error or a "
        "remote process exiting prematurely.\nLast error:\nNET/IB: Got completion from peer "
        "10.0.0.2<5000> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_RDMA_WRITE(1)\n",
        f"{NCCL}ProcessGroupNCCL.cpp:2251, unhandled system error (run with NCCL_DEBUG=INFO for "
        "details), NCCL version 2.25.1\nncclSystemError: System call (e.g. socket, malloc) or "
        "external library call failed or device error.\nLast error:\nNET/OFI Request 0x7f completed"
        " with error. RC: 113. Error: 4123 (Unresponsive receiver (reachable by EFA device))\n",
        "RuntimeError: Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport/"
        "tcp/pair.cc:144] no error\n",
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection closed"
        " by peer [10.0.0.2]:40311\n",
        "[rank2]: torch.distributed.DistNetworkError: The client socket has timed out after 300000m"
        "s while trying to connect to (node01, 20007).\n",
    ],
)  # fmt: skip
def test_a_fault_of_the_network_restarts(text: str, judge) -> None:  # type: ignore[no-untyped-def]
    verdict, node, reason = judge(text + task(2, "1") + TERMINATING + task(0, "Killed"), 137)
    assert (verdict, node) == ("restart", "node02")
    assert reason.startswith("the network failed on node02: ")
    assert judge(text + agent((2, 1), (3, 1)), 1, "torchrun")[:2] == ("restart", "node02")


def test_a_rank_that_is_killed_names_its_node_if_it_was_the_first(judge) -> None:  # type: ignore[no-untyped-def]
    killed = ("restart", "node02", "a rank was killed on node02")
    lost = LOST.format(rank=0, node=1) + "\n" + task(0, "70")
    for end in ("Killed", "Aborted (core dumped)", "Bus error", "Segmentation fault", "137"):
        assert judge(task(2, end) + lost + TERMINATING + task(1, "Killed"), 137) == killed
        assert judge(lost + task(2, end) + TERMINATING + task(1, "Killed"), 137) == killed
    verdict, node, reason = judge(lost + TERMINATING + task(2, "Terminated"), 137)
    assert (verdict, node) == ("restart", "") and "lost another rank" in reason
    assert judge(agent((2, -9), (3, -15)) + agent((0, 70)), 1, "torchrun") == killed
    assert judge(agent((0, 70)) + agent((3, -6), (2, -15)), 1, "torchrun") == killed
    timeout = WATCHDOG.replace("terminated with exception", "Watchdog caught collective operation "
                               "timeout") + "WorkNCCL(SeqNum=7, OpType=ALLREDUCE)\n"  # fmt: skip
    assert judge(timeout + task(0, "Aborted"), 134) == (
        "restart", "", "a collective operation timed out",
    )  # fmt: skip
    assert judge(timeout + f"{ECC}\n" + task(2, "1") + task(0, "Aborted"), 134)[1] == "node02"


def test_ranks_that_hang_or_lose_another_one(judge) -> None:  # type: ignore[no-untyped-def]
    """Exit code 70: all wait for the same rank, whose node is known if it alone says nothing."""
    hung = HUNG.format(rank=0, node=1)
    everyone = f"{hung}\n{HUNG.format(rank=2, node=2)}\n{task(0, '70')}{TERMINATING}"
    assert judge(everyone + task(2, "70"), 70) == ("restart", "", hung[7:])
    alone = f"{hung}\n{task(0, '70')}{TERMINATING}"
    assert judge(alone + task(2, "Killed") + task(3, "137"), 137) == (
        "restart", "node02", f"{hung[7:]}; silent: node02",
    )  # fmt: skip
    assert judge(alone + task(2, "Killed") + task(1, "Killed"), 137)[:2] == ("restart", "")
    missing = "error: rank(s) 1 of 2 did not start within 300 s; look at the last lines of its log"
    assert judge(f"{missing}\n{task(0, '70')}", 70) == ("restart", "", missing[7:])
    assert judge(f"{missing}\n", 70)[0] == "restart", "srun may be quiet"
    assert judge(f"{missing}\n{agent((0, 70))}", 1, "torchrun")[0] == "restart"


def test_a_mistake_wins_over_every_fault(judge) -> None:  # type: ignore[no-untyped-def]
    mistake = "error: --data /no: no such directory"
    faults = f"{ECC}\n{HUNG.format(rank=3, node=2)}\n{task(2, '70')}{task(3, 'Killed')}"
    for log, status in ((task(0, "2"), 137), ("", 2)):
        assert judge(f"{faults}{mistake}\n{log}", status)[:2] == ("end", "")
    assert judge(f"{mistake}\n{task(0, '2')}", 2) == ("end", "", mistake[7:])
    lost = LOST.format(rank=3, node=2)
    log = f"{lost}\n{task(3, '70')}{TERMINATING}{mistake}\n{task(0, '2')}"
    assert judge(log, 70) == ("end", "", mistake[7:]), "not the rank that lost it"
    log = agent((2, -9)) + agent((0, 70), (1, 2))
    assert judge(f"{mistake}\n{log}", 1, "torchrun")[0] == "end"


def test_memory_that_the_job_did_not_ask_for(judge) -> None:  # type: ignore[no-untyped-def]
    log = task(2, "Out Of Memory") + TERMINATING + task(0, "Killed")
    assert judge(log, 137) == ("end", "", "out of memory on node02; request more with --mem")


def test_a_long_log_is_judged_as_a_short_one(judge) -> None:  # type: ignore[no-untyped-def]
    """A reader that leaves early must not look like an error."""
    log = f"error: first\n{ECC}\n{task(2, '1')}" + "step 1\n" * 100_000
    assert judge(log, 1)[:2] == ("restart", "node02")
    assert judge(f"error: first\n{task(2, '1')}" + "step 1\n" * 100_000, 1)[2] == "first"


def test_nothing_that_is_known(judge) -> None:  # type: ignore[no-untyped-def]
    assert judge("", 1) == ("end", "", "exit code 1")
    lost = LOST.format(rank=0, node=1)
    log = f"{lost}\nKeyError: 'x'\n{task(2, '1')}{TERMINATING}{task(0, '70')}"
    assert judge(log, 70) == ("end", "", "KeyError: 'x'"), "not the rank that lost it"
    assert judge(task(0, "Terminated"), 143) == ("end", "", "exit code 143")

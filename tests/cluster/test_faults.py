"""What the logs of failed ranks say: restart or end, and without which node.

Above each text is its source: a thread on GitHub, or the code that prints it. Texts are shortened
to the lines that matter; addresses, names and the numbers of ranks are replaced. torchrun's report
is that of torch 2.13 (torch/distributed/elastic/multiprocessing/errors), srun's lines are those in
chrisknewman/tusas#149 and hafs-community/HAFS#101.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.shell import bash

Judge = Callable[..., tuple[str, str, str]]
# vllm-project/vllm#5222, where it was the hardware; the class is that of pytorch/helion#867
ECC = "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"
NCCL = "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/"
# ending_with_lost_ranks of pipeline/cluster/ranks.py, on the text of NVIDIA/nccl#1928
LOST = (
    "error: rank {rank} on node0{node} lost another rank (NCCL error in: "
    "/opt/pytorch/pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3763, remote process "
    "exited or there was a network error, NCCL version 2.28.8; NET/OFI Request 0x7f14cc5b60c0 "
    "completed with error. RC: 113. Error: 2 (UNDELIVERABLE). Completed length: 0): look at the "
    "last lines of that rank"
)
# pipeline/cluster/watchdog.py
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
def judge(tmp_path: Path) -> Judge:
    """Verdict, failed node and reason for a log."""

    def judge(log: str, status: int, launcher: str = "srun") -> tuple[str, str, str]:
        (tmp_path / "log").write_text("srun: error: node09: task 0: Killed\n" + log)
        script = (
            f"log={tmp_path}/log log_start=36 status={status} TENFOLD_LAUNCHER={launcher}; judge; "
            'printf "%s|%s|%s" "$verdict" "$failed_node" "$reason"'
        )
        verdict, node, reason = bash(script).split("|")
        return verdict, node, reason

    return judge


DEVICE_FAULTS = [
    (f"{ECC}\nCUDA kernel errors might be asynchronously reported", "uncorrectable ECC error"),
    # MIC-DKFZ/nnUNet#1519, pytorch/pytorch#58155
    ("RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution\n",
     "uncorrectable NVLink error"),
    # NVIDIA/nccl#1653; in NVIDIA/nccl-tests#276 it was the node's Fabric Manager
    (f"{NCCL}NCCLUtils.hpp:268, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL "
     "version 2.21.5\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
     "Cuda failure 999 'unknown error'\n", "unknown error"),
    # Tencent-Hunyuan/InstantCharacter#21; in scitix/sichek#121 a GPU that had to be reset
    ("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable\n",
     "busy or unavailable"),
    # haotian-liu/LLaVA#683
    ("RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions "
     "before calling NumCudaDevices() that might have already set an error? Error 802: system not "
     "yet initialized\n", "system not yet initialized"),
    # LSSI-ETH/plmfit#40
    ("slurmstepd: error: NVML: Failed to get usage(15): GPU is lost\nKeyError: 'x'\n", "GPU is "
     "lost"),
    # leptonai/gpud (RegexNVRMXidDmesg), learning-at-home/hivemind#509
    ("NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
     "\nKeyError: 'x'\n", "Xid (PCI:0000:05:00): 79,"),
    # docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt
    ("NVRM: Xid (PCI:0000:01:00): 94, pid=7062, Contained: CE User Channel (0x9). RST: No, D-RST: "
     "No\n", "Xid (PCI:0000:01:00): 94,"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), DEVICE_FAULTS)
def test_a_fault_of_a_device_restarts(text: str, reason: str, judge: Judge) -> None:
    verdict, node, why = judge(f"{text}\n{task(2, '1')}{TERMINATING}{task(0, 'Killed')}", 137)
    assert (verdict, node) == ("restart", "node02")
    assert why.startswith("a device failed on node02: ") and reason in why, why


def test_the_first_rank_that_failed_names_the_node(judge: Judge) -> None:
    """It has an exception; the others are killed or lose it, in any order."""
    for others in (
        task(2, "1") + TERMINATING + task(0, "Killed") + task(1, "Killed"),
        task(2, "1") + TERMINATING + task(0, "137") + task(1, "143"),
        LOST.format(rank=0, node=1) + "\n" + task(0, "70") + TERMINATING + task(2, "1"),
    ):
        assert judge(f"{ECC}\n{others}", 137)[:2] == ("restart", "node02")
    log = f"{ECC}\n{agent((2, 1), (3, -15))}{task(0, '1')}"
    assert judge(log, 1, "torchrun")[:2] == ("restart", "node02")


def test_a_fault_is_that_of_the_rank_that_reports_it(judge: Judge) -> None:
    """Though another one ends first, or all end as ranks that lost another one."""
    table = " rank  node                 local  GPU\n" + "".join(
        f"{rank:5}  node0{1 + rank // 2}                   {rank % 2}  NVIDIA H100, GPU-{rank}\n"
        for rank in range(4)
    )
    lost = LOST.format(rank=0, node=1) + "\n"
    for ends in (
        task(0, "Aborted (core dumped)") + task(2, "1"),
        lost + task(0, "70") + TERMINATING + task(2, "70"),
    ):
        log = f"{table}step 2 of 9\n[rank2]: {ECC}\n{ends}"
        assert judge(log, 134)[:2] == ("restart", "node02")
    xid = "NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.\n"
    everyone = f"{table}{xid}{lost}{task(0, '70')}{TERMINATING}"
    assert judge(everyone + task(2, "70"), 70)[:2] == ("restart", ""), "nobody says who"
    assert judge(everyone + task(2, "Killed"), 70)[:2] == ("restart", "node02"), "it hangs"


PROGRAM_ERRORS = [
    # sgl-project/sglang#1274
    "RuntimeError: CUDA error: device-side assert triggered\n",
    # modelscope/ms-swift#8371
    "[rank2]:[E318 09:26:18.141499142 ProcessGroupNCCL.cpp:2068] [PG ID 0 PG GUID 0(default_pg) "
    "Rank 2] Process group watchdog thread terminated with exception: CUDA error: device-side "
    "assert triggered\n",
    # cudaErrorHardwareStackError of the CUDA Runtime API, "possibly due to stack corruption or
    # exceeding the stack size limit"
    "torch.AcceleratorError: CUDA error: hardware stack error\n",
    # pytorch/pytorch#16417; without "cuda." since torch 2.5
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has a total "
    "capacity of 23.65 GiB of which 11.06 MiB is free.\n",
    # Intellindust-AI-Lab/DEIMv2#155
    f"{NCCL}NCCLUtils.cpp:93, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version "
    "2.28.9\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\n"
    "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device ac000\n",
    # EvolvingLMMs-Lab/open-r1-multimodal#7: NCCL_SOCKET_IFNAME was wrong
    f"[rank2]: {NCCL}ProcessGroupNCCL.cpp:2588, internal error - please report this issue to the "
    "NCCL developers, NCCL version 2.21.5\n[rank2]: ncclInternalError: Internal check "
    "failed.\n[rank2]: Last error:\n[rank2]: Bootstrap : no socket interface found\n",
    # Python
    "Traceback (most recent call last):\nKeyError: 'x'\n",
    "AssertionError\n",
    # NVIDIA/open-gpu-kernel-modules#1030
    "NVRM: Xid (PCI:0000:01:00): 31, pid=13705, name=python, channel 0x0000000c, intr 00000000. "
    "MMU Fault: ENGINE GRAPHICS GPC2 GPCCLIENT_PROP_0 faulted @ 0x0_00000000. Fault is of type "
    "FAULT_PDE ACCESS_TYPE_VIRT_READ\nRuntimeError: CUDA error: an illegal memory access was "
    "encountered\n",
    # stas00/ml-engineering, compute/accelerator/nvidia/debug.md: the GPU goes on with spare memory
    "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset "
    "gpu to activate.\nKeyError: 'x'\n",
]  # fmt: skip


@pytest.mark.parametrize("text", PROGRAM_ERRORS)
def test_an_error_of_a_program_ends_the_job(text: str, judge: Judge) -> None:
    """Though the survivors are killed, or report what looks like a fault of the network."""
    lost = (
        LOST.format(rank=0, node=1)
        # NVIDIA/nccl#1814
        + "\nnode01:984:1357 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer "
        "10.0.0.2<44206> with status=12 opcode=129 len=65536 vendor err 129 (Recv) localGid "
        "::ffff:10.0.0.1 remoteGids::ffff:10.0.0.2\n"
        # libtorch_cpu.so of torch 2.13
        "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely "
        "closed. Did the remote server shutdown or crash?\n"
        # ultralytics/ultralytics#24536
        "[rank1]: RuntimeError: CUDA error: Invalid access of peer GPU memory over nvlink or a "
        "hardware error\n"
    )
    last = TERMINATING + task(0, "Killed")
    assert judge(text + task(2, "1") + last, 137)[:2] == ("end", "")
    assert judge(text + lost + task(2, "1") + task(1, "70") + last, 137)[:2] == ("end", "")
    assert judge(text + agent((2, 1)) + lost + agent((0, 70)), 1, "torchrun")[:2] == ("end", "")
    if "illegal" in text or "assert triggered" in text:
        assert judge(text + task(2, "Aborted (core dumped)") + last, 134)[:2] == ("end", "")


NETWORK_FAULTS = [
    # awslabs/awsome-distributed-ai#192, NVIDIA/nccl#1515
    f"{NCCL}ProcessGroupNCCL.cpp:1331, unhandled system error (run with NCCL_DEBUG=INFO for "
    "details), NCCL version 2.18.5\nncclSystemError: System call (e.g. socket, malloc) or external "
    "library call failed or device error. \nLast error:\nsocketStartConnect: Connect to "
    "10.0.0.1<45069> failed : Software caused connection abort\n",
    # NVIDIA/nccl#1928
    f"[rank2]: {NCCL}ProcessGroupNCCL.cpp:3763, remote process exited or there was a network "
    "error, NCCL version 2.28.8\n[rank2]: ncclRemoteError: A call failed possibly due to a network "
    "error or a remote process exiting prematurely.\n[rank2]: Last error:\n[rank2]: NET/OFI "
    "Request 0x7f14cc5b60c0 completed with error. RC: 113. Error: 2 (UNDELIVERABLE). Completed "
    "length: 0\n",
    # NVIDIA/nccl#1092, where a maintainer says that NCCL 2.18 reports all network errors so, with
    # the last error of NVIDIA/nccl#1814
    f"[rank2]: {NCCL}ProcessGroupNCCL.cpp:1333, internal error - please report this issue to the "
    "NCCL developers, NCCL version 2.18.1\n[rank2]: ncclInternalError: Internal check "
    "failed.\n[rank2]: Last error:\n[rank2]: NET/IB : Got completion from peer 10.0.0.2<44206> "
    "with status=12 opcode=129 len=65536 vendor err 129 (Recv)\n",
    # sgl-project/sglang#3226
    "RuntimeError: Gloo connectFullMesh failed with "
    "[../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error\n",
    # hkust-nlp/simpleRL-reason#17
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
    "[10.0.0.2]:38032\n",
    # RVC-Project/Retrieval-based-Voice-Conversion-WebUI#1882
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:589] Read error "
    "[10.0.0.2]:25266: Connection reset by peer\n",
    # nvidia-cosmos/cosmos-rl#681
    "[rank2]: torch.distributed.DistNetworkError: The client socket has timed out after 300000ms "
    "while trying to connect to (node01, 41331).\n",
]  # fmt: skip


@pytest.mark.parametrize("text", NETWORK_FAULTS)
def test_a_fault_of_the_network_restarts(text: str, judge: Judge) -> None:
    verdict, node, reason = judge(text + task(2, "1") + TERMINATING + task(0, "Killed"), 137)
    assert (verdict, node) == ("restart", "node02")
    assert reason.startswith("the network failed on node02: ")
    assert judge(text + agent((2, 1), (3, 1)), 1, "torchrun")[:2] == ("restart", "node02")


def test_a_fault_of_a_device_or_not(judge: Judge) -> None:
    """They restart if the first rank reports them, and not if another one had an error before."""
    for text in (
        # pytorch/pytorch#74235: another machine solved it; opendatalab/MinerU#426: another GPU;
        # pytorch/pytorch#3912: it did not come back
        "CUDA error: unspecified launch failure",
        # daydreamlive/scope#749, ultralytics/ultralytics#24536
        "CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error",
    ):
        exception = f"[rank2]: torch.AcceleratorError: {text}\n"
        ends = task(2, "1") + TERMINATING + task(0, "Killed")
        verdict, node, reason = judge(exception + ends, 137)
        assert (verdict, node) == ("restart", "node02")
        assert reason == f"a device may have failed on node02: {text.removeprefix('CUDA error: ')}"
        assert judge(f"KeyError: 'x'\n{exception}{ends}", 137)[:2] == ("end", "")
        # hao-ai-lab/FastVideo#1008
        watchdog = (
            "[rank2]:[E113 11:43:02.241131296 ProcessGroupNCCL.cpp:1899] [PG ID 5 PG GUID 55(mesh_"
            f"replicate) Rank 2] Process group watchdog thread terminated with exception: {text}\n"
        )
        assert judge(watchdog + task(2, "Aborted (core dumped)"), 134)[:2] == ("restart", "node02")


def test_a_rank_that_is_killed_names_its_node_if_it_was_the_first(judge: Judge) -> None:
    killed = ("restart", "node02", "a rank was killed on node02")
    lost = LOST.format(rank=0, node=1) + "\n" + task(0, "70")
    for end in ("Killed", "Aborted (core dumped)", "Bus error", "Segmentation fault", "137"):
        assert judge(task(2, end) + lost + TERMINATING + task(1, "Killed"), 137) == killed
        assert judge(lost + task(2, end) + TERMINATING + task(1, "Killed"), 137) == killed
    verdict, node, reason = judge(lost + TERMINATING + task(2, "Terminated"), 137)
    assert (verdict, node) == ("restart", "") and "lost another rank" in reason
    assert judge(agent((2, -9), (3, -15)) + agent((0, 70)), 1, "torchrun") == killed
    assert judge(agent((0, 70)) + agent((3, -6), (2, -15)), 1, "torchrun") == killed
    # XPixelGroup/BasicSR#737
    timeout = (
        "[rank1]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=9801523, "
        "NumelOut=9801523, Timeout(ms)=600000) ran for 600020 milliseconds before timing out.\n"
    )
    assert judge(timeout + task(0, "Aborted"), 134) == (
        "restart", "", "a collective operation timed out",
    )  # fmt: skip
    assert judge(timeout + f"{ECC}\n" + task(2, "1") + task(0, "Aborted"), 134)[1] == "node02"


def test_ranks_that_hang_or_lose_another_one(judge: Judge) -> None:
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


def test_a_mistake_wins_over_every_fault(judge: Judge) -> None:
    mistake = "error: --data /no: no such directory"
    faults = f"{ECC}\n{HUNG.format(rank=3, node=2)}\n{task(2, '70')}{task(3, 'Killed')}"
    for log, status in ((task(0, "2"), 137), ("", 2)):
        assert judge(f"{faults}{mistake}\n{log}", status)[:2] == ("end", "")
    assert judge(f"{mistake}\n{task(0, '2')}", 2) == ("end", "", mistake[7:])
    diverged = "error: the gradient was not finite in 10 steps in a row"
    for log, status in ((task(0, "3"), 137), ("", 3)):
        assert judge(f"{faults}{diverged}\n{log}", status)[:2] == ("end", "")
    lost = LOST.format(rank=3, node=2)
    log = f"{lost}\n{task(3, '70')}{TERMINATING}{mistake}\n{task(0, '2')}"
    assert judge(log, 70) == ("end", "", mistake[7:]), "not the rank that lost it"
    log = agent((2, -9)) + agent((0, 70), (1, 2))
    assert judge(f"{mistake}\n{log}", 1, "torchrun")[0] == "end"


def test_memory_that_the_job_did_not_ask_for(judge: Judge) -> None:
    log = task(2, "Out Of Memory") + TERMINATING + task(0, "Killed")
    assert judge(log, 137) == ("end", "", "out of memory on node02; request more with --mem")
    # chrisknewman/tusas#149
    log = (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=440575.0. Some of the step tasks "
        "have been OOM Killed.\nsrun: error: nid001277: tasks 1-3: Out Of Memory\nsrun: "
        "Terminating StepId=440575.0\nslurmstepd: error: *** STEP 440575.0 ON nid001277 CANCELLED "
        "AT 2023-12-05T07:16:01 ***\n"
    )
    assert judge(log, 137) == ("end", "", "out of memory on nid001277; request more with --mem")


def test_a_long_log_is_judged_as_a_short_one(judge: Judge) -> None:
    """A reader that leaves early must not look like an error."""
    log = f"error: first\n{ECC}\n{task(2, '1')}" + "step 1\n" * 100_000
    assert judge(log, 1)[:2] == ("restart", "node02")
    assert judge(f"error: first\n{task(2, '1')}" + "step 1\n" * 100_000, 1)[2] == "first"


def test_nothing_that_is_known(judge: Judge) -> None:
    assert judge("", 1) == ("end", "", "exit code 1")
    lost = LOST.format(rank=0, node=1)
    log = f"{lost}\nKeyError: 'x'\n{task(2, '1')}{TERMINATING}{task(0, '70')}"
    assert judge(log, 70) == ("end", "", "KeyError: 'x'"), "not the rank that lost it"
    assert judge(task(0, "Terminated"), 143) == ("end", "", "exit code 143")


def test_a_mistake_is_the_exit_code_of_the_job(tmp_path: Path) -> None:
    """srun reports the highest code, here that of a rank that it ended: 75 starts a job again."""
    log = "error: shards are damaged\n" + task(0, "2") + TERMINATING + task(1, "75")
    (tmp_path / "log").write_text(log)
    script = f"log={tmp_path}/log log_start=0 status=75; judge; printf '%s' \"$status $reason\""
    assert bash(script) == "2 shards are damaged"

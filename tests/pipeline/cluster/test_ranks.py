import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import CheckpointError, DataError, DivergedError
from pipeline.cluster.ranks import (
    Alone,
    agreed,
    ending_with_lost_ranks,
    format_rank_error,
    launched_rank,
    report_once,
)
from tests.launching import process
from tests.pipeline.conftest import forkrun, launch, started
from tests.pipeline.test_train import wait_for
from tests.pipeline.training.toy_checkpoints import on_ranks

CODE = """
import os, signal, sys, time
import torch
from pipeline.base.errors import DataError, PipelineError, run_command
from pipeline.cluster.ranks import Cluster
from pipeline.cluster.stop_request import StopRequest

def main():
    stop = StopRequest()
    stop.listen()
    cluster = Cluster.join(stop)
    assert cluster.gather(f"rank {cluster.rank}" * cluster.rank) == ["", "rank 1"]
    content = bytes([255, 0]) * (1 - cluster.rank)
    assert cluster.from_first(content) == bytes([255, 0])
    assert cluster.from_first(b"mine" * cluster.rank) == b""
    assert cluster.total(torch.tensor([1.0, cluster.rank])).tolist() == [2.0, 1.0]
    assert cluster.any(cluster.rank == 1) and not cluster.any(False)
    with cluster.agreed():
        pass
    print("met", flush=True)
    try:
        with cluster.agreed():
            if cluster.rank == 1 or sys.argv[1] != "one":
                raise DataError("shards are damaged")
    except (PipelineError, SystemExit) as error:
        if sys.argv[1] == "signalled":
            # as the launcher does once the other rank has ended
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.wait_for_request(60)
            code = error.exit_code if cluster.rank == 0 else error.code
            print(f"ends with {code}\\n", end="", flush=True)
        raise
    print("continued")

run_command(main, at_once=True)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(CODE)
    return path


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("one", "error: rank 1: shards are damaged"),
        # a launcher sends a signal when one rank has ended, and the other is about to
        ("signalled", "error: shards are damaged"),
    ],
)
def test_a_mistake_ends_all_with_one_line(script: Path, mode: str, expected: str) -> None:
    result = launch(*forkrun(script, mode))
    assert result.stdout.count("met") == 2 and "continued" not in result.stdout
    assert [line for line in result.stderr.splitlines() if "error: " in line] == [expected]
    assert result.returncode, result.stderr
    if mode == "one":
        assert "exitcode  : 2" in result.stderr
    else:
        assert "exiting before training" not in result.stderr
        assert result.stdout.count("ends with 2\n") == 2


def test_a_wrong_time_limit_is_reported_once(script: Path) -> None:
    """The first rank reports it, before any rank waits for another."""
    launched = {
        "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1",
        "TENFOLD_TIMEOUT_SECONDS": "soon", "RANK": "0",
    }  # fmt: skip
    result = process.run([sys.executable, script, "one"], env=os.environ | launched)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith("error: TENFOLD_TIMEOUT_SECONDS='soon' ")


BEFORE_JOINING = """
import sys
from pathlib import Path
from pipeline.base.errors import DataError, run_command
from pipeline.cluster import ranks
from pipeline.cluster.stop_request import StopRequest

def main():
    stop = StopRequest()
    stop.listen()
    ranks.FIRST_RANK_SECONDS = float(sys.argv[2])
    keep = stop.keep_error
    stop.keep_error = lambda: (keep(), Path(sys.argv[1]).touch())
    with ranks.reporting_before_joining(stop):
        raise DataError("no data here")

run_command(main, at_once=True)
"""


def test_other_ranks_let_the_first_one_report(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launcher would end the first one as soon as another one has ended."""
    found = tmp_path / "found"
    script.write_text(BEFORE_JOINING)
    monkeypatch.setenv("RANK", "1")
    with started(sys.executable, script, found, "600") as rank:
        wait_for(found, rank)
        assert rank.poll() is None
        rank.send_signal(signal.SIGTERM)  # the first one has reported and ended
        assert rank.communicate(timeout=600) == ("", "") and rank.returncode == 2
    alone = process.run([sys.executable, script, found, "0"])  # the first one finds no error
    assert (alone.returncode, alone.stderr) == (2, "error: rank 1: no data here\n")
    monkeypatch.setenv("RANK", "0")
    first = process.run([sys.executable, script, found, "600"])
    assert (first.returncode, first.stderr) == (2, "error: no data here\n")


def test_only_the_first_rank_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert launched_rank() == 0
    monkeypatch.setenv("RANK", "3")
    assert launched_rank() == 3
    with pytest.raises(CheckpointError), report_once(0):
        raise CheckpointError("x")
    for error, code in ((CheckpointError("x"), 2), (DivergedError("x"), 3)):
        with pytest.raises(SystemExit) as silent, report_once(3):
            raise error
        assert silent.value.code == code


def test_a_mistake_names_the_ranks_that_made_it() -> None:
    for mistakes, message in (
        (["", "", ""], ""),
        (["full", "", ""], "full"),
        (["", "full", ""], "rank 1: full"),
        (["", "full", "gone"], "rank 1: full (and ranks 2)"),
        (["full", "", "gone"], "full (and ranks 2)"),
        (["full", "gone", "gone"], "full"),
    ):
        assert format_rank_error(mistakes) == message


@pytest.mark.parametrize("mistake", [DataError("full"), OSError("full")])
def test_a_mistake_of_one_rank_is_raised_on_all(mistake: Exception) -> None:
    """Only those of users and systems are shared."""

    def play(ranks: Any) -> None:
        with agreed(ranks, CheckpointError):
            if ranks.rank == 1:
                raise mistake

    errors = [(type(error), str(error)) for error in on_ranks(3, play)]
    assert errors == [(CheckpointError, "rank 1: full")] * 3
    with pytest.raises(ZeroDivisionError), agreed(Alone()):
        raise ZeroDivisionError


NCCL = "NCCL error in: /pytorch/torch/csrc/distributed/c10d/"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        # NVIDIA/nccl#2076
        (f"{NCCL}NCCLUtils.hpp:268, remote process exited or there was a network error, NCCL "
         "version 2.21.5\nncclRemoteError: A call failed possibly due to a network error or a "
         "remote process exiting prematurely.\nLast error:\nsocketProgressOpt: Call to recv from "
         "10.0.0.1<33759> failed : Connection reset by peer",
         f"{NCCL}NCCLUtils.hpp:268, remote process exited or there was a network error, NCCL "
         "version 2.21.5; socketProgressOpt: Call to recv from 10.0.0.1<33759> failed : Connection "
         "reset by peer"),
        # gloo/transport/tcp/pair.cc of 2026
        ("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:554] Connection closed by peer "
         "[10.0.0.2]:38032. This is typically caused by a remote worker crashing. Check the logs",
         "Connection closed by peer [10.0.0.2]:38032."),
    ],
)  # fmt: skip
def test_a_lost_rank_is_one_line_with_what_nccl_says(
    text: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end, ending_with_lost_ranks(3):
        raise RuntimeError(text)
    line = capsys.readouterr().err
    assert end.value.code == 70 and line.count("\n") == 1
    assert f"lost another rank ({reason}): look at the last lines" in line


@pytest.mark.parametrize(
    "text",
    [
        # Intellindust-AI-Lab/DEIMv2#155
        f"{NCCL}NCCLUtils.cpp:93, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL "
        "version 2.28.9\nncclInvalidUsage: This usually reflects invalid usage of NCCL "
        "library.\nLast error:\nDuplicate GPU detected : rank 0 and rank 1 both on CUDA device "
        "ac000",
        # NVIDIA/nccl#1653
        f"{NCCL}NCCLUtils.hpp:268, unhandled cuda error (run with NCCL_DEBUG=INFO for details), "
        "NCCL version 2.21.5\nncclUnhandledCudaError: Call to CUDA function failed.\nLast "
        "error:\nCuda failure 999 'unknown error'",
        # vllm-project/vllm#21731, with a frame of the stack
        "CUDA error: device-side assert triggered\nException raised from "
        "c10_cuda_check_implementation at /pytorch/c10/cuda/CUDAException.cpp:43 (most recent call "
        "first):\nframe #3: c10d::ProcessGroupNCCL::WorkNCCL::finishedGPUExecutionInternal() const "
        "+ 0x56",
        "",
    ],
)  # fmt: skip
def test_an_error_of_this_rank_is_not_another_rank_that_is_lost(text: str) -> None:
    """Its whole text is in the log, by which slurm/faults.sh ends or restarts the job."""
    with pytest.raises(RuntimeError, match="^" + re.escape(text)), ending_with_lost_ranks(0):
        raise RuntimeError(text)

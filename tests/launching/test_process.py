import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launching.process import ForkedProcess, quick_python, run, start
from tests.pipeline.conftest import forkrun
from tests.pipeline.preparing import FORKED

SAID = "import os, sys; print(__name__, sys.argv, os.getcwd(), os.environ.get('MARK'), input())"
"""What a program can see about its start."""


@pytest.mark.parametrize("cold", [True, False])
def test_a_program_sees_its_own_arguments_folder_environment_and_input(
    cold: bool, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(f"{SAID}\nsys.exit(7)")
    for arguments, shown in (
        (["-c", f"{SAID}; sys.exit(7)"], "-c"),
        ([tmp_path / "program.py"], str(tmp_path / "program.py")),
    ):
        result = run(
            [sys.executable, *arguments, "one", "two"],
            cold=cold, cwd=tmp_path, env=os.environ | {"MARK": "set"}, input="typed\n",
        )  # fmt: skip
        expected = f"__main__ {[shown, 'one', 'two']} {tmp_path} set typed\n"
        assert (result.returncode, result.stdout, result.stderr) == (7, expected, "")


def test_ends_are_those_of_python() -> None:
    for program, code, errors in (
        ("raise SystemExit('wrong')", 1, "wrong\n"),
        ("raise SystemExit(300)", 300 & 0xFF, ""),
        ("import os; os._exit(9)", 9, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
        ("import atexit; atexit.register(print, 'late')", 0, ""),
        ("import threading; threading.Timer(0.1, print, ['late']).start()", 0, ""),
    ):
        for cold in (True, False):
            result = run([sys.executable, "-c", program], cold=cold)
            assert (result.returncode, result.stderr) == (code, errors)
            assert result.stdout == "late\n" * ("late" in program)


def test_a_traceback_starts_in_the_program(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("def divide():\n    1 / 0\n\n\ndivide()\n")
    result = run([sys.executable, tmp_path / "program.py"])
    assert result.returncode == 1 and "launching" not in result.stderr
    assert result.stderr.startswith("Traceback (most recent call last):\n")
    assert result.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_a_process_is_polled_signalled_and_waited_for() -> None:
    waits = "import time; print('here', flush=True); time.sleep(600)"
    with start(
        [sys.executable, "-c", waits], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert isinstance(process, ForkedProcess) and process.stdout
        assert process.stdout.readline() == "here\n" and process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.05)
        process.send_signal(signal.SIGUSR1)  # SIGINT is ignored where a shell started us with &
        assert process.wait(timeout=60) == -signal.SIGUSR1
    with start(
        [sys.executable, "-c", waits], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout and process.stdout.readline() == "here\n"
        assert os.getpgid(process.pid) == process.pid
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait(timeout=60) == -signal.SIGKILL == process.poll()


def test_variables_that_imports_read_start_a_new_python() -> None:
    changed = os.environ | {"NUMBA_NUM_THREADS": "1"}
    with start([sys.executable, "-c", "pass"], env=changed) as process:
        assert not isinstance(process, ForkedProcess)


def test_a_stand_in_ends_as_its_process_and_passes_signals_on() -> None:
    with subprocess.Popen([*map(str, FORKED), "-c", "import sys; sys.exit(5)"]) as process:
        assert process.wait(timeout=60) == 5
    program = "import signal; print('here', flush=True); signal.pause()"
    for number in (signal.SIGTERM, signal.SIGKILL):
        with subprocess.Popen(
            [*map(str, FORKED), "-c", program], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout and process.stdout.readline() == "here\n"
            process.send_signal(number)
            assert process.wait(timeout=60) == -number
            assert process.stdout.read() == ""  # ends only when the forked process has ended


def test_a_quick_python_takes_flags_and_starts_more_of_its_kind() -> None:
    program = (
        "import subprocess, sys; print(sys.executable, sys.argv[1:]); "
        "subprocess.run([sys.executable, '-c', 'print(6 * 7)'])"
    )
    python = quick_python()
    result = run([python, "-u", "-B", "-X", "utf8", "-c", program, "one"])
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"{python} ['one']\n42\n"


MEETS = """
import sys, time
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
print(f"rank {dist.get_rank()}\\n", end="", flush=True)  # one write
if sys.argv[1] == "fails" and dist.get_rank() == 1:
    sys.exit(3)
time.sleep(600)
"""


def test_a_rank_that_fails_and_a_signal_end_all_ranks(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(MEETS)
    result = run(forkrun(tmp_path / "program.py", "fails"))
    assert result.returncode == 1
    failed = next(line for line in result.stderr.splitlines() if "exitcode" in line)
    assert failed.startswith("  exitcode  : 3 (pid: ")
    with start(
        forkrun(tmp_path / "program.py", "waits"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        for _ in range(2):
            assert process.stdout.readline().startswith("rank ")
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1 and errors.count(f"exitcode  : -{signal.SIGTERM:d} ") == 2

import os
import subprocess
import sys
from pathlib import Path

from pipeline.cluster import processes


def test_a_zombie_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        first = processes.read_start_time(process.pid)
        assert first.isdigit() and first == processes.read_start_time(process.pid)
        assert processes.parent(process.pid) == os.getpid()
        assert int(first) > int(processes.read_start_time(os.getpid()))
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert processes.read_start_time(process.pid) == ""  # a zombie
    assert processes.read_start_time(process.pid) == ""
    assert processes.parent(process.pid) == 0


def waits(command: list[str], **environment: str) -> subprocess.Popen[bytes]:
    """A process that has started and waits for its input to end."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | environment
    )
    assert process.stdout and process.stdout.readline() == b"started\n"
    return process


def test_what_a_process_runs() -> None:
    command = ["sh", "-c", "echo started; read x; exit", "a b (c", ""]
    with waits(command, MARK="one two") as process:
        assert processes.command(process.pid) == command
        assert "MARK=one two" in processes.environment(process.pid)
        assert processes.name(process.pid) == "sh"
        assert not processes.is_python(process.pid)
    assert processes.is_python(os.getpid())
    assert processes.command(process.pid) == [] and processes.environment(process.pid) == set()


def test_a_name_may_hold_anything(tmp_path: Path) -> None:
    program = tmp_path / ") Z 7"
    program.symlink_to("/bin/sh")
    with waits([str(program), "-c", "echo started; read x; exit"]) as process:
        assert processes.name(process.pid) == ") Z 7"
        assert processes.parent(process.pid) == os.getpid()
        assert processes.read_start_time(process.pid)

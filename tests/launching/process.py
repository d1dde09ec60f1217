"""Processes of tests: forked from a server that has imported everything, or started from scratch.

`start` is `subprocess.Popen` for a command line. `python -m pipeline.X` and scripts of `tests/`
start in a tenth of a second, see `fork_server`. Every other command starts as usual, and so does
one with other values of variables that are read during imports. `cold=True` asks for that.
"""

import json
import os
import select
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ADDRESS = "TENFOLD_TEST_FORK_SERVER"
"""Environment variable: the path of the server's socket."""
PYTHON = "TENFOLD_TEST_PYTHON"
"""Environment variable of a process that `quick_python` started: the path of that."""
READ_AT_IMPORT = (
    "PYTHON", "LD_", "NUMBA_", "XDG_", "HOME", "HF_", "TRANSFORMERS_", "DS_", "TORCH_", "CUDA_",
    "KMP_", "MKL_", "OPENBLAS_", "ARROW_", "MPI", "MATPLOTLIB", "MPL",
)  # fmt: skip
"""How names of variables start that libraries read during imports."""
SET_AT_IMPORT = ("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK")
"""Variables that scikit-learn, which transformers imports, sets to these defaults of its own."""


def _read_at_import(environment: Mapping[str, str]) -> dict[str, str]:
    names = [name for name in environment if name.startswith(READ_AT_IMPORT)]
    return {name: environment[name] for name in names if name not in SET_AT_IMPORT}


_SERVERS = _read_at_import(os.environ)
"""The server's values, because it inherits them from this process or from its parent."""


class ForkServerOwner:
    """Owns the server of a test session. It starts at the first request."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp()
        self._python = sys.executable  # a test may set it to `quick_python`, which needs the server
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"{self._folder}/socket")
        self.listener.listen(64)
        self._server: subprocess.Popen[bytes] | None = None
        self._closing, self._close = socket.socketpair()
        os.environ[ADDRESS] = f"{self._folder}/socket"
        python = quick_python()
        stand_in = Path(__file__).with_name("stand_in.py")
        command = shlex.join([sys.executable, "-S", "-E", str(stand_in)])
        python.write_text(f'#!/bin/sh\n{PYTHON}="$0" exec {command} "$@"\n')
        python.chmod(0o755)
        self._thread = threading.Thread(target=self._start_when_asked, daemon=True)
        self._thread.start()

    def _start_when_asked(self) -> None:
        ready, _, _ = select.select([self.listener, self._closing], [], [])
        if self.listener in ready:
            number = self.listener.fileno()
            self._server = subprocess.Popen(
                [self._python, "-m", "tests.launching.fork_server", str(number)],
                cwd=ROOT, stdin=subprocess.PIPE, pass_fds=[number],
                env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )  # fmt: skip

    def close(self) -> None:
        """End the server and its children."""
        self._close.close()
        self._thread.join()
        self.listener.close()
        if self._server is not None and self._server.stdin is not None:
            self._server.stdin.close()
            self._server.wait()
        del os.environ[ADDRESS]
        shutil.rmtree(self._folder)


class ForkedProcess(subprocess.Popen[str]):
    """A child of the server with the methods of a child of this process."""

    def _execute_child(self, args: Any, *others: Any) -> None:
        """Called by Popen once it has made the pipes."""
        _, _, _, _, cwd, environment, _, _, _, *pipes = others
        stdin, _, _, out, _, errors = pipes[:6]
        request = {
            "arguments": args[1:],
            "cwd": str(cwd or Path.cwd()),
            "environment": dict(os.environ if environment is None else environment),
            "new_session": pipes[11],
            "blocked": [],
            "descriptors": [0, 1, 2],
            "tied": False,
        }
        self._answers = socket.socket(socket.AF_UNIX)
        try:
            self._answers.connect(os.environ[ADDRESS])
            streams = [
                own if own != -1 else place for place, own in enumerate((stdin, out, errors))
            ]
            content = json.dumps(request).encode() + b"\n"
            sent = socket.send_fds(self._answers, [content], streams)
            self._answers.sendall(content[sent:])
            self.pid = self._answer("pid")
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes[:6])

    def _answer(self, kind: str) -> int:
        line = b""
        while not line.endswith(b"\n"):
            if not (byte := self._answers.recv(1)):
                raise RuntimeError(f"the fork server is gone; command: {self.args}")
            line += byte
        found, number = line.split()
        assert found.decode() == kind, (line, self.args)
        return int(number)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if wait_flags & os.WNOHANG and not select.select([self._answers], [], [], 0)[0]:
            return 0, 0
        status = self._answer("status")
        self._answers.close()
        return self.pid, status

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                process, status = self._try_wait(os.WNOHANG)
                if process:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def quick_python() -> Path:
    """A `python` whose processes, and all that they start as sys.executable, are forked."""
    return Path(os.environ[ADDRESS]).with_name("python")


def start(
    command: Sequence[object], *, cold: bool = False, **options: Any
) -> subprocess.Popen[str]:
    """`subprocess.Popen` of a command in text mode; cold: without the server."""
    words = [str(word) for word in command]
    options = {"text": True, "cwd": ROOT} | options
    environment = os.environ if options.get("env") is None else options["env"]
    if cold or not _can_fork(words, environment):
        return subprocess.Popen(words, **options)
    return ForkedProcess(words, **options)


def run(
    command: Sequence[object], *, timeout: float = 900, cold: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and capture what it prints."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    text = options.pop("input", None)
    if text is not None:
        options["stdin"] = subprocess.PIPE
    with start(command, cold=cold, **options) as process:
        try:
            output, errors = process.communicate(text, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def _can_fork(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    if ADDRESS not in os.environ or words[0] != sys.executable:
        return False
    known = _read_at_import(environment) == _SERVERS
    return known and (words[1] in ("-m", "-c") or Path(words[1]).suffix == ".py")

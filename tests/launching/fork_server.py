"""Starts Python processes in a tenth of a second: imports everything once, then forks.

    python -m tests.launching.fork_server LISTENER

A test's process costs four to eight seconds of CPU time before it does anything: it imports torch,
DeepSpeed and transformers. This server imports them once and forks one child per request. A child
is a real process with its own signals, exit code, environment, working directory and streams; only
the imports are shared. `tests.launching.process` is the client.

LISTENER is the descriptor of a socket. A request is one line of JSON; the child's descriptors come
with it. The answers are `pid N` once the child has its own environment, and `status N`, as
from waitpid, once it has ended. A child that is `tied` to its connection is killed when the other
end is closed. The server runs no Python thread, because after a fork a child has only the thread
that forked. At the end of its standard input it kills its children and ends.
"""

import fcntl
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from numba.core.dispatcher import Dispatcher

from pipeline.cluster import process_group
from tests.launching.main_module import run_as_main
from tests.launching.process import PYTHON

MODULES = (
    "deepspeed.runtime.zero.muon.muon_optimizer", "PIL.ImageDraw",
    "PIL.ImageFont", "pandas", "torch._dynamo", "torch.distributed.run",
    "torch.utils.tensorboard", "transformers.models.albert.modeling_albert",
    "transformers.models.auto.modeling_auto", "transformers.models.auto.tokenization_auto",
    "transformers.models.bert.modeling_bert", "transformers.models.electra.modeling_electra",
    "transformers.models.roberta.modeling_roberta",
    "pipeline.evaluate", "pipeline.export", "pipeline.inspect", "pipeline.prepare",
    "pipeline.train", "pipeline.train_tokenizer",
)  # fmt: skip
"""Modules that the commands import, at their start or later."""
LARGEST_REQUEST = 2**20
MOST_DESCRIPTORS = 64


class ForkServer:
    """The children, and the connections that wait for their ends."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._waiting: dict[int, socket.socket] = {}
        """Process number -> the connection that gets its status."""
        self._tied: dict[socket.socket, int] = {}
        """Connection -> the process that ends with it."""

    def serve(self) -> dict[str, Any]:
        """Serve until the tests end. Returns in each child, with its request."""
        woken, wakeup = os.pipe()
        for end in (woken, wakeup):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        owner = sys.stdin.fileno()
        while True:
            ready, _, _ = select.select([owner, woken, self._listener, *self._tied], [], [])
            if woken in ready:
                os.read(woken, 4096)
                self._reap()
            for connection in self._tied.keys() & set(ready):
                os.kill(self._tied.pop(connection), signal.SIGKILL)
            if self._listener in ready and (request := self._accept()):
                return request
            if owner in ready and not os.read(owner, 1):
                self._end()

    def _accept(self) -> dict[str, Any] | None:
        """Fork for one request; its content in the child, None in the server."""
        connection, _ = self._listener.accept()
        connection.settimeout(30)
        try:
            content, received, _, _ = socket.recv_fds(connection, LARGEST_REQUEST, MOST_DESCRIPTORS)
            while not content.endswith(b"\n") and (more := connection.recv(LARGEST_REQUEST)):
                content += more
            request: dict[str, Any] = json.loads(content)
        except (OSError, ValueError):
            connection.close()
            return None
        if process := os.fork():
            self._waiting[process] = connection
            if request["tied"]:
                self._tied[connection] = process
            for descriptor in received:
                os.close(descriptor)
            return None
        _take_over(request)
        connection.sendall(f"pid {os.getpid()}\n".encode())
        above = max(*received, *request["descriptors"]) + 1
        received = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, above) for descriptor in received]
        for target, descriptor in zip(request["descriptors"], received, strict=True):
            os.dup2(descriptor, target)
        for name in Path("/proc/self/fd").iterdir():
            if int(name.name) not in request["descriptors"]:
                with suppress(OSError):  # the one that iterdir had open
                    os.close(int(name.name))
        for left in (connection, self._listener, *self._waiting.values()):
            left.detach()  # closed already; the number may be another file's by now
        return request

    def _reap(self) -> None:
        while self._waiting:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                return
            with self._waiting.pop(process) as connection, suppress(OSError):
                self._tied.pop(connection, None)
                connection.sendall(f"status {status}\n".encode())

    def _end(self) -> None:
        for process in self._waiting:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for process in self._waiting:
            os.waitpid(process, 0)
        os._exit(0)


def _take_over(request: dict[str, Any]) -> None:
    """Become a process of its own: session, signals, directory, environment, seeds."""
    sys.executable = request["environment"].get(PYTHON, sys.executable)
    if request["new_session"]:
        os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    import numpy
    import torch

    numpy.random.seed(None)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1))


def _load_kernels() -> None:
    """Load every kernel that an earlier process compiled; a child then loads none."""
    for name, module in sorted(sys.modules.items()):
        if name.startswith("pipeline."):
            for kernel in vars(module).values():
                if isinstance(kernel, Dispatcher) and kernel.__module__ == name:
                    for signature, *_ in kernel._cache._cache_file._load_index():
                        kernel.compile(signature)


def import_modules() -> None:
    """Import what the commands import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        process_group.deepspeed_library()  # without its output
        for module in MODULES:
            importlib.import_module(module)


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    import_modules()
    _load_kernels()
    gc.collect()
    gc.freeze()
    request = ForkServer(listener).serve()
    run_as_main(request["arguments"])


if __name__ == "__main__":
    main()

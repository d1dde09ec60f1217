"""`python -S -E stand_in.py ARGUMENTS...` is `python ARGUMENTS...`, forked by the fork server.

For processes that mpiexec, torchrun, deepspeed or multiprocessing start: they see this process,
which starts in hundredths of a second, hands its descriptors and environment to the server, passes
signals on, and ends as the forked process does. If this process is killed, so is the forked one.
"""

import json
import os
import signal
import socket
import sys

ADDRESS = "TENFOLD_TEST_FORK_SERVER"
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)


def open_descriptors() -> list[int]:
    """What a new Python would inherit."""
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  as with getcwd below
        try:
            os.fstat(int(name))
        except OSError:  # that of the listing
            continue
        found.append(int(name))
    return found


def main() -> None:
    if ADDRESS not in os.environ:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    descriptors = open_descriptors()
    request = {
        "arguments": sys.argv[1:],
        "cwd": os.getcwd(),  # noqa: PTH109  pathlib takes as long as all the rest
        "environment": dict(os.environ),
        "new_session": False,
        "blocked": [int(number) for number in blocked],
        "descriptors": descriptors,
        "tied": True,
    }
    server = socket.socket(socket.AF_UNIX)
    server.connect(os.environ[ADDRESS])
    content = json.dumps(request).encode() + b"\n"
    sent = socket.send_fds(server, [content], descriptors)
    server.sendall(content[sent:])
    answers = server.makefile("r")
    process = int(answers.readline().split()[1])
    for descriptor in descriptors:
        os.close(descriptor)
    for number in PASSED_ON:
        signal.signal(number, lambda number, frame: os.kill(process, number))
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    code = os.waitstatus_to_exitcode(int(answers.readline().split()[1]))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()

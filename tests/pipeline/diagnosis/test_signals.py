"""USR1 arrives, or what blocks it is found, in a process of its own."""

import sys

from tests.launching import process

SCRIPT = """
from pipeline.diagnosis.exchange import Exchange
from pipeline.diagnosis.own_rank import LaunchPlace
from pipeline.diagnosis.signals import SignalWatch
watch = SignalWatch()
found = watch.check(Exchange(LaunchPlace()))
print(found.status, found.value)
"""


def test_a_blocked_signal_is_found() -> None:
    for before, expected in (
        ([], "ok arrived from this process, as Slurm did not start it"),
        (["env", "--ignore-signal=USR1"], "ok arrived from this process"),
        (["env", "--block-signal=USR1"], "fail blocked by what started Python"),
    ):
        ended = process.run([*before, sys.executable, "-c", SCRIPT], cold=True)
        assert ended.stdout.startswith(expected), ended.stdout + ended.stderr

"""How benchmarks measure: works take turns, by the clock and by CPU seconds; and peaks of memory.

Other work on the machine affects the clock, and CPU seconds less.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

THREADS = torch.get_num_threads()
"""Of torch, if nobody asks for others."""
MOST_SECONDS = 75
"""Seconds for the rounds of a benchmark; then it ends with those it has, at least one."""


class Seconds(NamedTuple):
    """Duration of a piece of work, or ratios of two."""

    wall: float
    cpu: float

    @classmethod
    def of(cls, work: Callable[[], object]) -> Seconds:
        started = time.perf_counter(), time.process_time()
        work()
        return cls(time.perf_counter() - started[0], time.process_time() - started[1])


def rounds(most: int) -> Iterator[bool]:
    """False for a warm-up round, then True for up to `most` rounds that count."""
    yield False
    until = time.perf_counter() + MOST_SECONDS
    for number in range(most):
        if number and time.perf_counter() > until:
            return
        yield True


def in_turn(works: Mapping[str, Callable[[], object]], most: int) -> dict[str, list[Seconds]]:
    """Seconds of each work in rounds after a warm-up, which compiles, maps and fills caches."""
    found: dict[str, list[Seconds]] = {name: [] for name in works}
    for counted in rounds(most):
        for name, work in works.items():
            seconds = Seconds.of(work)
            if counted:
                found[name].append(seconds)
    return found


def median(found: Sequence[Seconds]) -> Seconds:
    return Seconds(*map(statistics.median, zip(*found, strict=True)))


def ratio(first: Sequence[Seconds], second: Sequence[Seconds]) -> Seconds:
    """Medians of the ratios of each round."""
    pairs = zip(first, second, strict=True)
    return median([Seconds(one.wall / two.wall, one.cpu / two.cpu) for one, two in pairs])


def parse(doc: str, **defaults: Any) -> argparse.Namespace:
    """The command line: an option by each name, of the type of its default, or of any number of
    values if that is a list. `threads` are set in torch: 1 on a busy machine, so that other work
    does not inflate CPU seconds."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    for name, default in defaults.items():
        many = isinstance(default, list)
        kind = type(default[0] if many else default)
        nargs = "+" if many else None
        parser.add_argument(f"--{name}", type=kind, nargs=nargs, default=default)
    options = parser.parse_args()
    if "threads" in defaults:
        torch.set_num_threads(options.threads)
    return options


# A small process starts the command: the kernel's peak counts what a process was forked from.
_STARTER = """
import os, sys
child = os.spawnvp(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(child, 0)
print(f"\\n{usage.ru_utime + usage.ru_stime} {usage.ru_maxrss / 1024}", end="")
sys.exit(os.waitstatus_to_exitcode(status))
"""


class Alone(NamedTuple):
    """What a command took, its start and its children included."""

    cpu: float
    """Seconds."""
    peak: float
    """MB of its largest process, by the kernel."""
    said: str
    """Its output."""


def run_alone(*command: object, **environment: str) -> Alone:
    """Run a command. Raises RuntimeError with its errors if it fails."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", _STARTER, *map(str, command)],
        capture_output=True, text=True, check=False, env=os.environ | environment,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr}")
    said, _, figures = done.stdout.rpartition("\n")
    return Alone(*map(float, figures.split()), said)


@contextmanager
def peer(python: str, script: str, *arguments: object) -> Iterator[Callable[..., Any]]:
    """A process of another environment that answers a line of JSON with one; yields how to ask."""
    with subprocess.Popen(
        [python, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout
        stdin, stdout = process.stdin, process.stdout

        def ask(**request: object) -> Any:
            print(json.dumps(request), file=stdin, flush=True)
            return json.loads(stdout.readline())

        yield ask
        stdin.close()

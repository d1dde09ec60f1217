"""A pytest plugin: CPU seconds per test, the slowest first, and in all.

    python -m pytest -p tests.cpu_seconds tests/end_to_end/test_features.py

Counts this process, its children and those of the fork server (`launching`), which have ended. A
row that needs a preparation first pays for it, so the order of tests matters. Not with -n.
"""

import os
import resource
from collections.abc import Generator
from pathlib import Path

import pytest

LEAST = 1.0
"""CPU seconds of a test that is listed."""


class CpuSeconds:
    def __init__(self) -> None:
        self._before = _used()
        self._start = self._before
        self._tests: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before = _used()
        try:
            return (yield)
        finally:
            self._tests[item.nodeid] = _used() - before

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        slowest = sorted(self._tests.items(), key=lambda pair: -pair[1])
        terminalreporter.section("CPU seconds")
        for name, seconds in slowest:
            if seconds >= LEAST:
                terminalreporter.line(f"{seconds:8.1f}  {name}")
        tests = sum(self._tests.values())
        terminalreporter.line(f"{tests / 60:.1f} CPU minutes in {len(self._tests)} tests")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CpuSeconds())


def _used() -> float:
    """CPU seconds so far: of this process, of the fork server, and of the children of both."""
    mine = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in mine) + sum(map(_of_server, _children()))


def _children() -> list[int]:
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(number) for number in text.split()]


def _of_server(process: int) -> float:
    """CPU seconds of a child that still runs, and of those it has waited for."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

"""Reads mutated input of one kind, case after case, in a process that is watched.

    python tests/fuzz/fuzz.py TARGET [--cases 10000] [--first 0] [--case NUMBER] [--keep FOLDER]

A case is a number: the same number gives the same input. The cases run in a forked process whose
memory is limited; when it ends or stays silent, the case is a finding and another process continues
after it. Every case must end in an answer: a PipelineError, which commands print as one line, or
reasons that are counted. Anything else is a finding: another exception, a message that is not one
readable line, a signal, more than SECONDS. Prints the counts by answer, and the findings; exits
with 1 if there are any. `--case` reads one case and prints the whole traceback.
"""

import argparse
import contextlib
import faulthandler
import json
import os
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import IO

sys.path.insert(0, str(Path(__file__).parents[2]))

from pipeline.base.errors import LONGEST_MESSAGE, PipelineError, one_line
from tests.fuzz.targets import TARGETS, Target

SECONDS = 60.0
"""By the clock. A document may take ten seconds of CPU before it is dropped."""
MEMORY_BYTES = 2 << 30
"""Address space that the cases may take, more than what the process begins with."""
MOST_FINDINGS = 200


@dataclass
class Report:
    """What cases were answered with."""

    answers: Counter[str] = field(default_factory=Counter)
    findings: dict[int, str] = field(default_factory=dict)
    """Case -> what happened."""
    peak_bytes: int = 0
    """Largest resident memory of a process."""
    slowest: float = 0.0
    """Seconds of the longest case."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--case", type=int)
    parser.add_argument("--keep", type=Path, help="leave the input of --case in this new folder")
    given = parser.parse_args()
    target = TARGETS[given.target]
    with tempfile.TemporaryDirectory(prefix="fuzz") as name:
        folder = Path(name)
        if _in_child(lambda: target.build(folder / "good")):
            sys.exit("the good input cannot be made")
        began, before = time.monotonic(), _cpu_seconds()
        if given.case is not None:
            sys.exit(_in_child(lambda: _one(target, given.case, folder, given.keep)))
        report = fuzz(target, range(given.first, given.first + given.cases), folder)
        seconds, cpu = time.monotonic() - began, _cpu_seconds() - before
    for answer, count in report.answers.most_common():
        print(f"{count:7,}  {answer}")
    print(
        f"{given.target}: {given.cases:,} cases, {len(report.findings)} findings, {seconds:.0f} s, "
        f"{cpu:.0f} s of CPU, slowest {report.slowest:.1f} s, peak {report.peak_bytes / 1e6:.0f} MB"
    )
    for case, what in report.findings.items():
        print(f"--- {given.target} --case {case}\n{what}")
    sys.exit(1 if report.findings else 0)


def _cpu_seconds() -> float:
    """What the processes that ended have taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def fuzz(target: Target, cases: range, folder: Path) -> Report:
    """Run the cases of a target that was built in `folder`/good."""
    report, first = Report(), cases.start
    while first < cases.stop and len(report.findings) < MOST_FINDINGS:
        first = _watch(target, range(first, cases.stop), folder, report)
    return report


def _watch(target: Target, cases: range, folder: Path, report: Report) -> int:
    """Run cases in a new process. Returns the case after the last one that was begun."""
    reading, writing = os.pipe()
    errors = folder / "stderr"
    process = os.fork()
    if not process:
        os.close(reading)
        with errors.open("wb") as file:
            os.dup2(file.fileno(), 2)
        with os.fdopen(writing, "w") as answers:
            _leave(lambda: _work(target, cases, folder, answers))
    os.close(writing)
    done, buffer = cases.start - 1, b""
    began = time.monotonic()
    while select.select([reading], [], [], SECONDS)[0] and (found := os.read(reading, 1 << 16)):
        *lines, buffer = (buffer + found).split(b"\n")
        for line in lines:
            done += 1
            _take(line, done, report)
        report.slowest = max(report.slowest, time.monotonic() - began)
        began = time.monotonic()
    os.close(reading)
    if done + 1 < cases.stop:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGABRT)  # shows where it was
    _, status = os.waitpid(process, 0)
    if done + 1 < cases.stop:
        said = errors.read_bytes()[-3000:].decode(errors="replace")
        report.findings[done + 1] = f"ended with {os.waitstatus_to_exitcode(status)}\n{said}"
        return done + 2
    return cases.stop


def _take(line: bytes, case: int, report: Report) -> None:
    values = json.loads(line)
    report.peak_bytes = max(report.peak_bytes, values["peak"])
    report.answers.update(values["answers"])
    if values["finding"]:
        report.findings[case] = values["finding"]


def _work(target: Target, cases: range, folder: Path, answers: IO[str]) -> None:
    """Run cases; writes a line for each."""
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    faulthandler.enable()
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY_BYTES, -1))
    for case in cases:
        found, finding = answer(target, case, folder)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        answers.write(json.dumps({"answers": found, "finding": finding, "peak": peak}) + "\n")
        answers.flush()


def answer(target: Target, case: int, folder: Path) -> tuple[list[str], str]:
    """What reading a case gives: the answers to count, and what is wrong, or ""."""
    place = folder / "case"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    try:
        reasons = target.read(folder / "good", random_of(target, case), place)
        return sorted({*map(_counted, reasons)}), ""
    except PipelineError as error:
        line = one_line(str(error))
        if not line.isprintable() or len(line) > LONGEST_MESSAGE + 10:
            return ["unreadable message"], f"not one readable line: {line!r:.4000}"
        return [f"error: {_counted(line)}"], ""
    except OSError as error:
        if error.filename is None:
            return ["OSError"], traceback.format_exc()
        return [f"error: {error.strerror}"], ""
    except BaseException as error:
        return [type(error).__name__], traceback.format_exc()[-6000:]


def random_of(target: Target, case: int) -> Random:
    """What decides a case."""
    return Random(f"{target.name} {case}")


def _counted(message: str) -> str:
    """A message without its values."""
    message = re.sub(r"/\S+", "PATH", message)
    message = re.sub(r"'[^']*'|\"[^\"]*\"|\{.*\}|\[.*\]", "…", message)
    return re.sub(r"-?\d[\d,.e+]*", "N", message)[:70]


def _one(target: Target, case: int, folder: Path, keep: Path | None) -> None:
    place = keep or folder / "case"
    place.mkdir()
    try:
        for reason in target.read(folder / "good", random_of(target, case), place):
            print("counted:", reason)
    except PipelineError as error:
        print("error:", error)


def _in_child(work: Callable[[], object]) -> int:
    """Do something in a forked process, so that this one keeps a single thread."""
    sys.stdout.flush()
    process = os.fork()
    if not process:
        _leave(work)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _leave(work: Callable[[], object]) -> None:
    """Do something and end this process."""
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()

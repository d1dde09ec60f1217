"""RUN/history.tsv: when the run began, how each life of it ended, and why.

Each line is one event: time, Slurm job ("-" without one), kind and text, separated by tabs.

    job           a batch file started; text: its log
    began         the first rank holds RUN; text: its log, if its messages go to a file
    ended         the ranks ended by themselves
    interrupted   they were asked to stop, and saved
    failed        they ended by an error; text: the error
    requeued      the batch file starts the job again; text: the reason

The first rank and slurm/restarts.sh write these. A life that ends without a line was killed.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

HISTORY = "history.tsv"
JOB, BEGAN, ENDED = "job", "began", "ended"
INTERRUPTION, FAILURE, REQUEUE = "interrupted", "failed", "requeued"
NO_JOB = "-"
MOST_CHARACTERS = 1000
"""Longest text of an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A run from one start to its end."""

    job: str
    """Slurm's number of the job, "" without one."""
    began_at: str
    log: str
    """The file with its messages, "" if unknown."""
    ready: bool = False
    """True if the first rank has begun."""
    end: str = ""
    """The last event of `ended`, `interrupted`, `failed`, `requeued`; "" if there is none."""
    ended_at: str = ""
    reason: str = ""


def note_event(run: Path, kind: str, text: str = "") -> None:
    """Add an event. It is lost if the disk refuses it: the run is worth more than the note."""
    job = os.environ.get("SLURM_JOB_ID") or NO_JOB
    # Words joined by blanks: a tab or a line end in the text would break the format.
    line = "\t".join((now_utc(), job, kind, " ".join(text.split())[:MOST_CHARACTERS]))
    content = f"{line}\n".encode(errors="backslashreplace")  # paths may hold any bytes
    # Appended in one write: the batch file adds lines at the same time.
    with suppress(OSError), (run / HISTORY).open("ab") as file:
        file.write(content)


def note_error(run: Path, error: BaseException) -> None:
    """Add that the ranks ended by an error."""
    lines = str(error).splitlines()
    kind = type(error).__name__
    note_event(run, FAILURE, lines[0] if lines else kind)


def lives(lines: Iterable[str]) -> list[Life]:
    """The lives in the lines of a history; lines that are not events are skipped.

    The last one is that of the last event: of two jobs, the one that held RUN to its end.
    """
    found: list[Life] = []
    for line in lines:
        parts = line.rstrip("\n").split("\t")
        if len(parts) != 4:  # a kill cut it short
            continue
        at, job, kind, text = parts
        job = "" if job == NO_JOB else job
        if kind in (JOB, BEGAN):
            # the ranks of a batch file that has just started are the same life
            place = _newest(found, job)
            if kind == BEGAN and place is not None and _awaits_ranks(found[place]):
                life = found.pop(place)
                found.append(replace(life, ready=True, log=life.log or text))
            else:
                found.append(Life(job=job, began_at=at, log=text, ready=kind == BEGAN))
        elif kind in (ENDED, INTERRUPTION, FAILURE, REQUEUE) and move_last(found, job):
            reason = text or found[-1].reason  # that of the failure, if a requeue gives none
            found[-1] = replace(found[-1], end=kind, ended_at=at, reason=reason)
    return found


def move_last(found: list[Life], job: str) -> bool:
    """Move a job's newest life to the end of a list. Returns whether there is one."""
    place = _newest(found, job)
    if place is None:
        return False
    found.append(found.pop(place))
    return True


def own_log() -> str:
    """The file that this process writes its errors to; "" for a terminal or a pipe."""
    try:
        path = Path("/proc/self/fd/2").readlink()
        return str(path) if stat.S_ISREG(os.fstat(2).st_mode) and path.exists() else ""
    except OSError:
        return ""


def now_utc() -> str:
    """The time in seconds, as `2026-01-31T23:59:59Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _newest(found: Sequence[Life], job: str) -> int | None:
    return next((n for n in reversed(range(len(found))) if found[n].job == job), None)


def _awaits_ranks(life: Life) -> bool:
    return not life.ready and not life.end

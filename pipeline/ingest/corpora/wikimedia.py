"""Dumps of Wikimedia's wikis: the parts with the articles, from the dump's published list.

`<wiki>/<date>/dumpstatus.json` has each file's length and hash. It is kept next to the files.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from pipeline.base.errors import ConfigError, DataError
from pipeline.remote.copies import PublishedFile, is_length, published_list
from pipeline.remote.http import read_small

WIKIMEDIA = "https://dumps.wikimedia.org"
CONNECTIONS = 3
"""Most per address, as the front page of the dumps says."""
LIST = "dumpstatus.json"
_JOBS = ("articlesdump", "articlesdumprecombine")
"""Large wikis have parts, and one file of all; small ones have one file."""
_HASH = re.compile(r"[0-9a-f]{40}")
_DUMP = re.compile(r"([a-z][a-z0-9_]*)/(\d{8})")


def list_dump(dump: str, downloads: Path, *, recording: bool = True) -> list[PublishedFile]:
    """The dump's files of current articles, in the order of their pages.

    dump: e.g. enwiki/20260101; recording: keep the list. Raises ConfigError for another form,
    DataError if the list cannot be read or the dump is not finished.
    """
    if not _DUMP.fullmatch(dump):
        raise ConfigError(f"--dump {dump}: give one wiki and a date, e.g. enwiki/20260101")
    read = functools.partial(read_small, f"{WIKIMEDIA}/{dump}/{LIST}")
    parse = functools.partial(_articles, dump)
    files = published_list(downloads / dump / LIST, read, parse, recording=recording)
    return [
        PublishedFile(
            url=f"{WIKIMEDIA}/{dump}/{name}",
            path=f"{dump}/{name}",
            size=about["size"],
            hash=about["sha1"],
            connections=CONNECTIONS,
            downloads=downloads.absolute(),
        )
        for name, about in files.items()
    ]


def _articles(dump: str, status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Size and hash of each file of articles by its name, in the order of pages.

    Raises ValueError, TypeError or KeyError for a list that is damaged.
    """
    found = [status["jobs"][name] for name in _JOBS if name in status["jobs"]]
    finished = [job["files"] for job in found if job["status"] == "done"]
    if not finished:
        states = ", ".join(str(job["status"]) for job in found) or "not there"
        raise DataError(
            f"the dump {dump} of the articles is {states}; wait for it, or name an earlier date of "
            f"{WIKIMEDIA}/{dump.partition('/')[0]}/"
        )
    # Parts rather than one file of all: they are read in parallel.
    parts = [(part, name) for name in finished[0] if (part := _part(dump, name))]
    if not parts:
        raise DataError(f"the dump {dump} has no file of articles; name another one")
    # As numbers: p10 comes after p2. A wiki in one file has neither.
    parts.sort(key=lambda part: (int(part[0][2] or 0), int(part[0][1] or 0)))
    files = {name: finished[0][name] for _, name in parts}
    for name, about in files.items():
        if not is_length(about["size"]) or not _HASH.fullmatch(about["sha1"]):
            raise ValueError(name)
    return files


def _part(dump: str, name: str) -> re.Match[str] | None:
    """A file of current articles of the dump: its number and its first page, if it has them."""
    stem = re.escape(dump.replace("/", "-"))
    # The name becomes a path on this machine, so it must hold no slash and nothing else.
    return re.fullmatch(rf"{stem}-pages-articles(\d*)\.xml(?:-p(\d+)p\d+)?\.bz2", name, re.ASCII)

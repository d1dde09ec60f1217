"""Dumps of Wikimedia's wikis: the parts with the articles, from the dump's published list.

`<wiki>/<date>/dumpstatus.json` has each file's length and hash; where a mirror's list has no
hashes, `<wiki>-<date>-sha1sums.txt` has. The list is kept next to the files.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from pipeline.base.errors import ConfigError, DataError
from pipeline.base.shown_urls import show_url
from pipeline.base.typed_json import as_object
from pipeline.remote.http import read_small
from pipeline.remote.kept_lists import (
    Entries,
    Keeping,
    PublishedFile,
    is_length,
    kept_list,
    published_files,
)

WIKIMEDIA = "https://dumps.wikimedia.org"
CONNECTIONS = 3
"""Most per address, as the front page of the dumps says."""
_JOBS = ("articlesdump", "articlesdumprecombine")
"""Large wikis have parts, and one file of all; small ones have one file."""
_HASH = re.compile(r"[0-9a-f]{32}|[0-9a-f]{40}")
_DUMP = re.compile(r"([a-z][a-z0-9_]*)/(\d{8})")


def list_dump(dump: str, base: str, keeping: Keeping) -> list[PublishedFile]:
    """The dump's files of current articles, in the order of their pages.

    dump: e.g. enwiki/20260101; base: address of Wikimedia's dumps or a mirror. Raises ConfigError
    for another form, DataError if the list cannot be read or the dump is not finished.
    """
    if not _DUMP.fullmatch(dump):
        raise ConfigError(f"--dump {dump}: give a wiki and a date, e.g. enwiki/20260101")
    entries = kept_list(
        keeping.downloads / dump,
        functools.partial(_look_up, dump, base),
        functools.partial(_checked, dump),
        recording=keeping.recording,
    )
    return published_files(dump, entries, keeping, base=base, connections=CONNECTIONS)


def _look_up(dump: str, base: str) -> Entries:
    url = f"{base}/{dump}/dumpstatus.json"
    shown, content = show_url(url), read_small(url)
    try:
        jobs = as_object(content)["jobs"]
        found = [jobs[name] for name in _JOBS if name in jobs]
        finished = [job for job in found if job["status"] == "done"]
        if not finished:
            states = ", ".join(str(job["status"]) for job in found) or "not there"
            raise DataError(
                f"{shown}: the dump of the articles is {states}; wait for it, or name an earlier "
                f"date of {show_url(base)}/{dump.partition('/')[0]}/"
            )
        files = finished[0]["files"]  # parts rather than one file of all: they are read in parallel
        if not all(about.get("sha1") or about.get("md5") for about in files.values()):
            hashes = _sha1_sums(dump, base)
            files = {name: about | {"sha1": hashes[name]} for name, about in files.items()}
        entries = _checked(dump, _entries(dump, files))  # names and sizes come from a network
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{shown} is not a list of a dump ({error!r}); use a mirror") from error
    if not entries:
        raise DataError(f"{shown} lists no file of articles; name another dump")
    return entries


def _entries(dump: str, files: dict[str, dict[str, Any]]) -> Entries:
    """Name, size and hash of each file of articles, in the order of pages."""
    parts = [(found, about) for name, about in files.items() if (found := _part(dump, name))]
    # As numbers: p10 comes after p2. A wiki in one file has neither.
    parts.sort(key=lambda part: (int(part[0][2] or 0), int(part[0][1] or 0)))
    return [
        {"name": found[0], "size": about["size"], "hash": about.get("sha1") or about.get("md5")}
        for found, about in parts
    ]


def _checked(dump: str, entries: Entries) -> Entries:
    """The entries of a list; raises ValueError, TypeError or KeyError for other content."""
    for entry in entries:
        is_sound = is_length(entry["size"]) and re.fullmatch(_HASH, entry["hash"])
        if not is_sound or not _part(dump, entry["name"]):
            raise ValueError(entry)
    return entries


def _part(dump: str, name: str) -> re.Match[str] | None:
    """A file of current articles of the dump: its number and its first page, if it has them."""
    stem = re.escape(dump.replace("/", "-"))
    # The name becomes a path on this machine, so it must hold no slash and nothing else.
    return re.fullmatch(rf"{stem}-pages-articles(\d*)\.xml(?:-p(\d+)p\d+)?\.bz2", name, re.ASCII)


def _sha1_sums(dump: str, base: str) -> dict[str, str]:
    """Hashes by name, from the dump's list of them."""
    text = read_small(f"{base}/{dump}/{dump.replace('/', '-')}-sha1sums.txt").decode("ascii")
    pairs = [line.split() for line in text.splitlines() if line.strip()]
    return {name: digits for digits, name in pairs}

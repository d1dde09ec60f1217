"""CC-NEWS, Common Crawl's news: the WARC files of each month, from its published lists.

`crawl-data/CC-NEWS/YYYY/MM/warc.paths.gz` lists the paths of a month's files, about 1 GB each;
their lengths and versions are looked up file by file. Both are kept next to the files, so a list is
read once, every part of an array uses the same one, and compute nodes need no network for it. A
month that is not over has the files that there were when it was listed. Files that are listed and
do not exist stop the command, or are skipped, and stay so in the kept list.
"""

from __future__ import annotations

import functools
import io
import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pipeline.base.errors import ConfigError, DataError
from pipeline.base.progress import tracked
from pipeline.base.shown_urls import show_url
from pipeline.ingest.compression.codecs import decompressed
from pipeline.remote.http import is_gone, look_up, read_small
from pipeline.remote.kept_lists import (
    Entries,
    Keeping,
    PublishedFile,
    is_length,
    kept_list,
    published_files,
)

COMMON_CRAWL = "https://data.commoncrawl.org"
CONNECTIONS = 8
"""Connections at a time. No number is published; Common Crawl asks for few requests."""
LANGUAGE = "en"
"""RoBERTa's CC-News is English (Liu et al. 2019, sec. 3.2)."""
FIRST_MONTH = "2016-08"
_MOST_LIST_BYTES = 16 << 20
"""Largest unpacked list of paths; usual ones have about a hundred kilobytes."""
_MOST_SHOWN = 200
"""Characters shown of a word that is not a path."""
_MONTH = re.compile(r"(\d{4})-(0[1-9]|1[0-2])")


def parse_months(text: str) -> list[str]:
    """2016-09..2019-02 or 2016-09, or several of them with commas, as months in order.

    Raises ConfigError for anything else.
    """
    months: set[str] = set()
    for item in text.split(","):
        first, dots, last = item.partition("..")
        bounds = [first, last if dots else first]
        # In order as text, since zeros pad them.
        if not all(map(_MONTH.fullmatch, bounds)) or bounds != sorted(bounds):
            raise ConfigError(
                f"--months {text}: give months as 2019-02, 2016-09..2019-02, or several with commas"
            )
        if first < FIRST_MONTH:
            raise ConfigError(f"--months {text}: the first month of CC-NEWS is {FIRST_MONTH}")
        months |= {_name(number) for number in range(_number(first), _number(bounds[1]) + 1)}
    return sorted(months)


def list_months(
    months: list[str], base: str, keeping: Keeping, *, skip_missing: bool = False
) -> list[PublishedFile]:
    """The WARC files of the months, sorted by path.

    base: address of Common Crawl or a mirror; skip_missing: leave out files that are listed and do
    not exist. Raises DataError if a list cannot be read.
    """
    files: list[PublishedFile] = []
    for month in months:
        entries = kept_list(
            keeping.downloads / _folder(month),
            functools.partial(_look_up_month, month, base, skip_missing),
            functools.partial(_checked, month),
            recording=keeping.recording,
        )
        _report_missing(month, entries, skip_missing)
        files += published_files(
            _folder(month),
            [entry for entry in entries if not entry.get("is_missing")],
            keeping,
            base=base,
            connections=CONNECTIONS,
        )
    return files


def _look_up_month(month: str, base: str, skip_missing: bool) -> Entries:
    url = f"{base}/{_folder(month)}/warc.paths.gz"
    packed = read_small(url)
    try:
        text = _unpacked(packed).decode("ascii")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(
            f"{show_url(url)} is not a list of paths in gzip ({error}); use a mirror"
        ) from error
    found, wrong = set(), None
    for word in re.finditer(r"\S+", text):  # one by one: words take up to 17 times their bytes
        if not _is_of(month, word[0]):
            wrong = word[0][:_MOST_SHOWN]
            break
        found.add(word[0])
    if wrong is not None or not found:
        what = "no files" if wrong is None else f"{wrong!r}, which is not a WARC file of {month}"
        raise DataError(
            f"{show_url(url)} lists {what}; use a mirror, or leave {month} out of --months"
        )
    paths = sorted(found)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        # The list has no lengths: each costs a request, hence several at a time, once for all
        # parts.
        looks = pool.map(_look_up_file, [base] * len(paths), paths)
        entries = [*tracked(looks, f"listing {month}", "files", len(paths))]
    if not skip_missing:
        _report_missing(month, entries, skip_missing)  # before they are kept
    return entries


def _unpacked(packed: bytes) -> bytes:
    parts, size = [], 0
    for block in decompressed(io.BytesIO(packed), "gz"):
        parts.append(block)
        size += len(block)
        if size > _MOST_LIST_BYTES:  # a few megabytes of gzip can become gigabytes
            raise OSError(f"over {_MOST_LIST_BYTES >> 20} MiB")
    return b"".join(parts)


def _look_up_file(base: str, path: str) -> dict[str, Any]:
    try:
        size, version = look_up(f"{base}/{path}")
    except DataError as error:
        if not is_gone(error):  # a file that cannot be reached may exist
            raise
        return {"path": path, "size": 0, "version": "", "is_missing": True}
    return {"path": path, "size": size, "version": version}


def _report_missing(month: str, entries: Entries, skip_missing: bool) -> None:
    """Name the files that do not exist; raises DataError unless they are to be left out."""
    missing = [entry["path"] for entry in entries if entry.get("is_missing")]
    if not missing:
        return
    text = f"{month}: {len(missing):,} of {len(entries):,} listed files do not exist (HTTP 404)"
    if not skip_missing or len(missing) == len(entries):
        raise DataError(
            f"{text}, such as {missing[0]}; use a mirror, or --skip-missing to skip them"
        )
    print(f"note: {text} and are skipped: {', '.join(missing)}", flush=True)


def _checked(month: str, entries: Entries) -> Entries:
    """The entries of a list; raises ValueError, TypeError or KeyError for other content."""
    for entry in entries:
        is_sound = is_length(entry["size"]) and isinstance(entry["version"], str)
        if not is_sound or not _is_of(month, entry["path"]):
            raise ValueError(entry)
    return entries


def _is_of(month: str, path: str) -> bool:
    """True if this is the path of a WARC file of the month, and leads nowhere else."""
    return bool(re.fullmatch(rf"{_folder(month)}/\w[\w.-]*\.warc\.gz", path, re.ASCII))


def _folder(month: str) -> str:
    return f"crawl-data/CC-NEWS/{month.replace('-', '/')}"


def _number(month: str) -> int:
    return int(month[:4]) * 12 + int(month[5:]) - 1


def _name(number: int) -> str:
    return f"{number // 12:04d}-{number % 12 + 1:02d}"

"""CC-NEWS, Common Crawl's news: the WARC files of each month, from its published lists.

`crawl-data/CC-NEWS/YYYY/MM/warc.paths.gz` lists the paths of a month's files, about 1 GB each;
their lengths are looked up file by file. Both are kept in `sizes.json` next to the files, so a list
is read once, every part of an array uses the same one, and compute nodes need no network for it. A
month that is not over has the files that there were when it was listed. Files that are listed and
do not exist stop the command, or are skipped, and stay so in `sizes.json`.
"""

from __future__ import annotations

import functools
import io
import json
import re
import zlib
from pathlib import Path

from pipeline.base.errors import ConfigError, DataError
from pipeline.base.progress import tracked
from pipeline.execution.threads import on_threads
from pipeline.ingest.compression.codecs import decompressed
from pipeline.remote.copies import PublishedFile, is_length, published_list
from pipeline.remote.http import MOST_LIST_BYTES, is_gone, look_up, read_small

COMMON_CRAWL = "https://data.commoncrawl.org"
CONNECTIONS = 8
"""Connections at a time. No number is published; Common Crawl asks for few requests."""
LANGUAGE = "en"
"""RoBERTa's CC-News is English (Liu et al. 2019, sec. 3.2)."""
LIST = "sizes.json"
FIRST_MONTH = "2016-08"
_MISSING = -1
"""In place of the size of a file that does not exist."""
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
                f"--dump {text}: give months as 2019-02 or 2016-09..2019-02, or WIKI/DATE"
            )
        if first < FIRST_MONTH:
            raise ConfigError(f"--dump {text}: the first month of CC-NEWS is {FIRST_MONTH}")
        numbers = [int(month[:4]) * 12 + int(month[5:]) - 1 for month in bounds]
        months |= {f"{n // 12:04d}-{n % 12 + 1:02d}" for n in range(numbers[0], numbers[1] + 1)}
    return sorted(months)


def list_months(
    months: list[str], downloads: Path, *, skip_missing: bool = False, recording: bool = True
) -> list[PublishedFile]:
    """The WARC files of the months, sorted by path.

    skip_missing: leave out files that are listed and do not exist; recording: keep the lists.
    Raises DataError if a list cannot be read.
    """
    files: list[PublishedFile] = []
    for month in months:
        sizes = published_list(
            downloads / _folder(month) / LIST,
            functools.partial(_look_up_month, month),
            functools.partial(_checked, month, skip_missing),
            recording=recording,
        )
        files += [
            PublishedFile(
                url=f"{COMMON_CRAWL}/{path}",
                path=path,
                size=size,
                connections=CONNECTIONS,
                downloads=downloads.absolute(),
            )
            for path, size in sizes.items()
            if size != _MISSING
        ]
    return files


def _look_up_month(month: str) -> bytes:
    """The list that is kept: the size of each path."""
    url = f"{COMMON_CRAWL}/{_folder(month)}/warc.paths.gz"
    packed = io.BytesIO(read_small(url))
    paths: set[str] = set()
    try:
        content = b""
        for block in decompressed(packed, "gz"):
            content += block
            if len(content) > MOST_LIST_BYTES:  # a few megabytes of gzip can become gigabytes
                raise OSError(f"over {MOST_LIST_BYTES >> 20} MiB")
        text = content.decode("ascii")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{url} is not a list of paths in gzip ({error})") from error
    for word in re.finditer(r"\S+", text):  # one by one: words take up to 17 times their bytes
        if not _is_of(month, word[0]):
            raise DataError(f"{url} lists {word[0][:200]!r}, not a WARC file of {month}")
        paths.add(word[0])
    if not paths:
        raise DataError(f"{url} lists no files; leave {month} out")
    # The list has no lengths: each costs a request, hence several at a time, once for all parts.
    listed = sorted(paths)
    sizes = on_threads(_size_of, listed, CONNECTIONS)
    sizes = tracked(sizes, f"listing {month}", "files", len(paths))
    return json.dumps(dict(zip(listed, sizes)), indent=0).encode()


def _size_of(path: str) -> int | None:
    """The length that the server states; `_checked` refuses a list with none."""
    try:
        return look_up(f"{COMMON_CRAWL}/{path}")[0]
    except DataError as error:
        if not is_gone(error):  # a file that cannot be reached may exist
            raise
        return _MISSING


def _report_missing(month: str, sizes: dict[str, int], skip_missing: bool) -> None:
    """Name the files that do not exist; raises DataError unless they are to be left out."""
    missing = [path for path, size in sizes.items() if size == _MISSING]
    if not missing:
        return
    text = f"{month}: {len(missing):,} of {len(sizes):,} listed files do not exist (HTTP 404)"
    if not skip_missing or len(missing) == len(sizes):
        raise DataError(f"{text}, such as {missing[0]}; --skip-missing skips them")
    print(f"note: {text} and are skipped: {', '.join(missing)}", flush=True)


def _checked(month: str, skip_missing: bool, sizes: dict[str, int]) -> dict[str, int]:
    """The sizes of a list; raises ValueError or AttributeError for other content, DataError for
    files that are missing, so that such a list is not kept."""
    for path, size in sizes.items():
        if not _is_of(month, path) or not (is_length(size) or size == _MISSING):
            raise ValueError(path)
    _report_missing(month, sizes, skip_missing)
    return sizes


def _is_of(month: str, path: str) -> object:
    """A match if this is the path of a WARC file of the month, and leads nowhere else."""
    return re.fullmatch(rf"{_folder(month)}/\w[\w.-]*\.warc\.gz", path, re.ASCII)


def _folder(month: str) -> str:
    return f"crawl-data/CC-NEWS/{month.replace('-', '/')}"

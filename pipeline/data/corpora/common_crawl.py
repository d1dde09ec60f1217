"""CC-NEWS, Common Crawl's news: the WARC files of each month, from its published lists.

`crawl-data/CC-NEWS/YYYY/MM/warc.paths.gz` lists the paths of a month's files, about 1 GB each;
their lengths and versions are looked up file by file. Both are kept beside the files, so a list is
read once, every part of an array uses the same one, and compute nodes need no network for it. A
month that is not over has the files that there were when it was listed.
"""

from __future__ import annotations

import functools
import gzip
import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tqdm import tqdm

from pipeline.data.documents.records import PublishedFile
from pipeline.data.fetching.http_files import look_up, read_small
from pipeline.data.fetching.kept_lists import Entries, kept_list
from pipeline.errors import ConfigError, DataError

COMMON_CRAWL = "https://data.commoncrawl.org"
CONNECTIONS = 8
"""No number is published. Common Crawl asks for few requests and many retries."""
LANGUAGE = "en"
"""RoBERTa's CC-News is English (Liu et al. 2019, sec. 3.2)."""
FIRST_MONTH = "2016-08"
_MONTH = re.compile(r"(\d{4})-(0[1-9]|1[0-2])")


def parse_months(text: str) -> list[str]:
    """2016-09..2019-02 or 2016-09, or several of them with commas, as months in order.

    Raises ConfigError for anything else.
    """
    months: set[str] = set()
    for item in text.split(","):
        first, dots, last = item.partition("..")
        bounds = [first, last if dots else first]
        if not all(map(_MONTH.fullmatch, bounds)) or bounds != sorted(bounds):
            raise ConfigError(
                f"--months {text}: give months as 2019-02, 2016-09..2019-02, or several with commas"
            )
        if first < FIRST_MONTH:
            raise ConfigError(f"--months {text}: the first month of CC-NEWS is {FIRST_MONTH}")
        months |= {_name(number) for number in range(_number(first), _number(bounds[1]) + 1)}
    return sorted(months)


def list_months(
    months: list[str], base: str, downloads: Path, *, is_kept: bool, recording: bool = True
) -> list[PublishedFile]:
    """The WARC files of the months, sorted by path.

    base: address of Common Crawl or a mirror; recording: keep lists that are not there yet in
    `downloads`. Raises DataError if a list cannot be read.
    """
    entries: Entries = []
    for month in months:
        entries += kept_list(
            downloads / _folder(month),
            functools.partial(_look_up_month, month, base),
            functools.partial(_checked, month),
            recording=recording,
        )
    return [
        PublishedFile(
            url=f"{base}/{entry['path']}",
            path=entry["path"],
            size=entry["size"],
            hash="",
            version=entry["version"],
            connections=CONNECTIONS,
            is_kept=is_kept,
        )
        for entry in entries
    ]


def _look_up_month(month: str, base: str) -> Entries:
    url = f"{base}/{_folder(month)}/warc.paths.gz"
    packed = read_small(url)
    try:
        lines = gzip.decompress(packed).decode("ascii").split()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{url} is not a list of paths in gzip ({error}); use a mirror") from error
    paths = sorted(set(lines))
    wrong = next((path for path in paths if not _is_of(month, path)), None)
    if wrong is not None or not paths:
        what = "no files" if wrong is None else f"{wrong!r}, which is not a WARC file of {month}"
        raise DataError(f"{url} lists {what}; use a mirror, or leave {month} out of --months")
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        found = pool.map(look_up, [f"{base}/{path}" for path in paths])
        about = [*tqdm(found, f"listing {month}", len(paths), unit="file", disable=None)]
    return [
        {"path": path, "size": size, "version": version}
        for path, (size, version) in zip(paths, about, strict=True)
    ]


def _checked(month: str, entries: Entries) -> Entries:
    """The entries of a list; raises ValueError, TypeError or KeyError for other content."""
    for entry in entries:
        is_sound = isinstance(entry["size"], int) and isinstance(entry["version"], str)
        if not is_sound or not _is_of(month, entry["path"]):
            raise ValueError(entry)
    return entries


def _is_of(month: str, path: str) -> bool:
    """Whether this is the path of a WARC file of the month, and leads nowhere else."""
    return bool(re.fullmatch(rf"{_folder(month)}/\w[\w.-]*\.warc\.gz", path, re.ASCII))


def _folder(month: str) -> str:
    return f"crawl-data/CC-NEWS/{month.replace('-', '/')}"


def _number(month: str) -> int:
    return int(month[:4]) * 12 + int(month[5:]) - 1


def _name(number: int) -> str:
    return f"{number // 12:04d}-{number % 12 + 1:02d}"

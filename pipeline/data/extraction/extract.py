"""Slow formats are extracted once, to Parquet files that every recipe reads.

A Wikipedia dump takes core-hours to become text, so `prepare` and `train_tokenizer` first write
`$TENFOLD_ROOT/documents/<file>-<fingerprint>.parquet` for each slow file, and read that from then
on. The fingerprint covers the file, whatever its folder, and the code that reads it. A file appears
only when it is complete; if several processes need the same one (parts of an array), one writes it
and the others wait.

Every record has a row, with its text or with the reason why it was dropped, so the counts of
documents always add up.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config.settings import fingerprint
from pipeline.data.documents.file_identity import content_identity
from pipeline.data.documents.parquet import EXTRACTION_MARK
from pipeline.data.documents.records import EXTRACTED, BadRecord, Extract, Format, Source
from pipeline.data.execution.workers import Executor, Stage, share, unfinished
from pipeline.data.extraction.mediawiki import read_articles
from pipeline.data.extraction.tar_archives import TAR_VERSION, read_tar
from pipeline.data.extraction.web_pages import WEB_VERSION, read_pages, read_web
from pipeline.data.extraction.wikitext import WIKITEXT_VERSION
from pipeline.data.fetching.local_copies import fetched, remove_copies, remove_copy
from pipeline.files import make_directory, only_once

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("url", pa.string()),
        pa.field("title", pa.string()),
        pa.field("text", pa.string()),  # null if dropped
        pa.field("dropped", pa.string()),  # null if kept
        pa.field("bad", pa.string()),  # why it is unusable, or null
        pa.field("revised", pa.string()),
        pa.field("language", pa.string()),
        pa.field("domain", pa.string()),
    ]
)
GROUP_BYTES = 16 << 20
"""Text per row group: half a split, so that workers can share a large file."""


@dataclass(frozen=True, slots=True)
class SlowFormat:
    """How files of a format are read, and the versions that determine the output."""

    read: Callable[[Source], Iterator[Extract | BadRecord]]
    """Yields every record in order; raises DataError if the file is unusable."""
    begin: Callable[[Source], Iterator[Extract | BadRecord]]
    """Yields records without first reading the whole file; for estimates."""
    code: int
    """Version of our code: increase it when the same file gives different output."""
    packages: tuple[str, ...]
    """Packages whose versions affect the output."""


FORMATS: dict[Format, SlowFormat] = {
    "mediawiki": SlowFormat(read_articles, read_articles, WIKITEXT_VERSION, ("mwparserfromhell",)),
    "tar": SlowFormat(read_tar, read_tar, TAR_VERSION, ()),
    "warc": SlowFormat(read_web, read_pages, WEB_VERSION, ("fastwarc", "resiliparse")),
}
"""Formats that are extracted; the others are read directly."""


@dataclass(frozen=True, slots=True)
class ExtractionTask:
    """One raw file to extract to one Parquet file."""

    number: int
    source: Source
    mark: str
    """Fingerprint of the file and of the code that reads it."""
    directory: Path

    @property
    def target(self) -> Path:
        """The Parquet file."""
        return self.directory / f"{self.source.name}-{self.mark}.parquet"

    @property
    def weight(self) -> int:
        """Bytes of the file."""
        return self.source.size

    @property
    def name(self) -> str:
        """Its name in logs."""
        return f"extract {self.source.name}"

    @property
    def marker(self) -> str:
        """Name of the Parquet file."""
        return self.target.name


def extract(
    sources: list[Source], directory: Path, executor: Executor, part: tuple[int, int] = (1, 1)
) -> list[Source]:
    """Return the sources, with slow ones replaced by their Parquet files under `directory`.

    Extracts the missing ones, and fetches published ones first. part: of a job array, does its
    share of the files before it helps with the others.
    """
    slow = [source for source in sources if source.format in FORMATS]
    if not slow:
        return sources
    make_directory(directory)
    tasks = [_task(number, source, directory) for number, source in enumerate(slow)]
    stage = Stage(directory, _start)
    waiting = {task.marker for task in unfinished(stage, tasks)}
    remove_copies([task.source for task in tasks if task.marker not in waiting])
    if part != (1, 1):
        executor.run(stage, share(tasks, *part))
    executor.run(stage, tasks)
    made = {source: _made(source, task) for source, task in zip(slow, tasks)}
    return [made.get(source, source) for source in sources]


def _task(number: int, source: Source, directory: Path) -> ExtractionTask:
    # By base name: the folders are the user's path to the file, not part of its identity.
    bare = replace(source, name=Path(source.name).name)
    return ExtractionTask(number, bare, _mark(bare), directory)


def _start() -> Callable[[ExtractionTask], None]:
    return _extract_file


def _extract_file(task: ExtractionTask) -> None:
    """Make the file of `task`, unless another process makes it or has made it."""
    with only_once(task.target) as temporary:
        if temporary:
            _write(fetched(task.source), task.mark, temporary)
    remove_copy(task.source)


def _mark(source: Source) -> str:
    format = FORMATS[source.format]
    return fingerprint(
        {
            "format": source.format,
            "columns": SCHEMA.names,
            "code": format.code,
            "packages": {name: _version(name) for name in format.packages},
            "pages_per_domain": source.pages_per_domain,
            "file": [source.name, source.size, content_identity(source)],
        }
        | ({"language": source.language} if source.language else {})
    )


_version = functools.cache(version)  # there may be thousands of files


def _made(source: Source, task: ExtractionTask) -> Source:
    made = task.target.stat()
    return replace(
        source,
        path=str(task.target.absolute()),
        size=made.st_size,
        format=EXTRACTED,
        compression="",
        mtime_ns=made.st_mtime_ns,
        published=None,
    )


def not_extracted(sources: list[Source], directory: Path) -> list[Source]:
    """The slow sources whose Parquet files do not exist yet."""
    there = {path.name for path in directory.glob("*.parquet")}
    tasks = [_task(number, source, directory) for number, source in enumerate(sources)]
    return [source for source, task in zip(sources, tasks) if task.marker not in there]


def _write(source: Source, mark: str, path: Path) -> None:
    schema = SCHEMA.with_metadata({EXTRACTION_MARK: mark})
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for rows in _groups(source):
            writer.write_table(pa.Table.from_pylist(rows, schema))


def _groups(source: Source) -> Iterator[list[dict[str, str | None]]]:
    rows: list[dict[str, str | None]] = []
    size = 0
    for record in FORMATS[source.format].read(source):
        rows.append(_row(record))
        size += len(rows[-1]["text"] or "")
        if size >= GROUP_BYTES:
            yield rows
            rows, size = [], 0
    yield rows


def _row(record: Extract | BadRecord) -> dict[str, str | None]:
    if isinstance(record, BadRecord):
        return dict.fromkeys(SCHEMA.names) | {"id": record.where, "bad": record.reason}
    return {
        "id": record.id,
        "url": record.url,
        "title": record.title,
        "text": None if record.dropped else record.text,
        "dropped": record.dropped or None,
        "bad": None,
        "revised": record.revised,
        "language": record.language,
        "domain": record.domain,
    }

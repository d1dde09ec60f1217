"""Files that are slow to read are read once: what they say goes to Parquet, for every recipe.

A dump of Wikipedia takes core-hours to become text, so `prepare` and `train_tokenizer` first make
`$TENFOLD_ROOT/documents/<file>-<fingerprint>.parquet` of each such file, and from then on read
that. The fingerprint is of the file, whatever folder it is found through, and of the code that read
it. A file appears when it is whole; of several that want the same one (an array's parts), one makes
it and the others wait.

Every record has a row: with its text, or with the reason why it was dropped, so that documents in
are documents out and reasons, whoever counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config.settings import fingerprint
from pipeline.data.documents.file_identity import file_ends
from pipeline.data.documents.parquet import EXTRACTION_MARK
from pipeline.data.documents.records import EXTRACTED, BadRecord, Extract, Format, Source
from pipeline.data.execution.workers import Team, do_tasks
from pipeline.data.extraction.mediawiki import read_articles
from pipeline.data.extraction.tar_archives import TAR_VERSION, read_tar
from pipeline.data.extraction.web_pages import WEB_VERSION, read_pages, read_web
from pipeline.data.extraction.wikitext import WIKITEXT_VERSION
from pipeline.files import make_directory, only_once

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("url", pa.string()),
        pa.field("title", pa.string()),
        pa.field("text", pa.string()),  # null when dropped
        pa.field("dropped", pa.string()),  # null when not
        pa.field("bad", pa.string()),  # why it cannot be used; null when it can
        pa.field("revised", pa.string()),
        pa.field("language", pa.string()),
        pa.field("domain", pa.string()),
    ]
)
GROUP_BYTES = 16 << 20
"""Text of a row group: half a split, so that a large file is shared among workers."""


@dataclass(frozen=True, slots=True)
class SlowFormat:
    """How files of a format are read, and what decides what comes out."""

    read: Callable[[Source], Iterator[Extract | BadRecord]]
    """Every record in order; DataError when the file cannot be used."""
    begin: Callable[[Source], Iterator[Extract | BadRecord]]
    """The same at once, if need be without what only the whole file tells; for estimates."""
    code: int
    """Version of our code: goes up when the same file comes out differently."""
    packages: tuple[str, ...]
    """Others' code that does the work."""


FORMATS: dict[Format, SlowFormat] = {
    "mediawiki": SlowFormat(read_articles, read_articles, WIKITEXT_VERSION, ("mwparserfromhell",)),
    "tar": SlowFormat(read_tar, read_tar, TAR_VERSION, ()),
    "warc": SlowFormat(read_web, read_pages, WEB_VERSION, ("fastwarc", "resiliparse")),
}
"""Which are extracted; the others are read where they are."""


@dataclass(frozen=True, slots=True)
class ExtractionTask:
    """One raw file to make one Parquet file of."""

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
        """What it is, for logs."""
        return f"extract {self.source.name}"


@dataclass(frozen=True, slots=True)
class Extraction:
    """What the tasks have in common, see `workers.Setup`."""

    directory: Path

    def worker(self) -> Extractor:
        """Whoever does tasks."""
        return Extractor()

    def is_done(self, names: set[str], task: ExtractionTask) -> bool:
        """Whether a task's file is there; names: of what is in `directory`."""
        return task.target.name in names


class Extractor:
    """Does tasks; keeps nothing between them."""

    def do(self, task: ExtractionTask) -> None:
        """Make the file of `task`, unless somebody else does or has."""
        with only_once(task.target) as temporary:
            if temporary:
                _write(task.source, task.mark, temporary)


def extract(
    sources: list[Source], directory: Path, team: Team, part: int = 1, *, in_log: bool = False
) -> list[Source]:
    """The same sources, the slow ones as their Parquet files under `directory`, made if need be.

    part: of an array, from 1: each begins with another file.
    """
    slow = [source for source in sources if source.format in FORMATS]
    if not slow:
        return sources
    make_directory(directory)
    # by its own name: the folders before it are the user's way to it, not the file's
    bare = [replace(source, name=Path(source.name).name) for source in slow]
    tasks = [
        ExtractionTask(number, source, _mark(source), directory)
        for number, source in enumerate(bare)
    ]
    first = (part - 1) % len(tasks)
    do_tasks(Extraction(directory), tasks[first:] + tasks[:first], team, in_log=in_log)
    made = {source: _made(source, task) for source, task in zip(slow, tasks)}
    return [made.get(source, source) for source in sources]


def _mark(source: Source) -> str:
    format = FORMATS[source.format]
    return fingerprint(
        {
            "format": source.format,
            "columns": SCHEMA.names,
            "code": format.code,
            "packages": {name: version(name) for name in format.packages},
            "pages_per_domain": source.pages_per_domain,
            "file": [source.name, source.size, file_ends(source.path)],
        }
    )


def _made(source: Source, task: ExtractionTask) -> Source:
    return replace(
        source,
        path=str(task.target.absolute()),
        size=task.target.stat().st_size,
        format=EXTRACTED,
        compression="",
    )


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

"""Files are extracted once, to Parquet files that every recipe reads; JSON lines need not be.

A Wikipedia dump takes core-hours to become text, and a million small files take hours to be found.
So `prepare` and `train_tokenizer` first write
`$TENFOLD_ROOT/documents/<file>-<fingerprint>.parquet` for each file that is not JSON lines, Parquet
or Arrow, and read that from then on. Small files come in groups (`packs`). The fingerprint covers
the file, whatever its folder, and the version of its reader; it is in the Parquet file, too, and
shards depend on it.

A file is a task. Its Parquet file appears only when it is complete, so a kill repeats at most one
file per process. If several processes need the same one (parts of an array), one writes it and the
others do the rest. A published file that is not here is fetched by the process that extracts it, so
that few copies take disk space at a time. A single large dump would keep one process busy for
hours, so this process reads it, and all processes extract its pages.

Every record has a row, with its text or with the reason why it was dropped, so the counts of
documents always add up.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.base.errors import DataError
from pipeline.base.files import make_directory, remove_temporaries, temporary_path, whole_file
from pipeline.base.progress import with_progress
from pipeline.config.settings import fingerprint
from pipeline.execution.ledger import hold_lock, lock_of
from pipeline.execution.workers import Executor, Stage, unfinished
from pipeline.ingest.compression.codecs import BLOCK_BYTES, decompressed, naming
from pipeline.ingest.documents.json_lines import keeps_fields
from pipeline.ingest.documents.parquet import CONTENT_MARK, EXTRACTION_MARK
from pipeline.ingest.documents.read import (
    BZIP2_VERSION,
    READERS,
    READING_VERSION,
    content_identity,
    cut,
)
from pipeline.ingest.documents.records import EXTRACTED, FoundAs, Source
from pipeline.ingest.documents.unchanged import (
    CHANGED,
    identify,
    is_known,
    state_of,
    unchanged,
)
from pipeline.ingest.extraction.document_tables import (
    SCHEMA,
    extract_tables,
    piece_tables,
    stored_records,
    stored_tables,
    write_documents,
)
from pipeline.ingest.extraction.formats import (
    PieceFormat,
    SlowFormat,
    format_of,
    is_extracted,
    is_finished,
)
from pipeline.ingest.extraction.mediawiki import RawPage, extract_page, find_pages
from pipeline.ingest.extraction.packs import PACK, identity_of_group
from pipeline.remote.copies import fetched, is_here, remove_copies

SHARED_DUMP_BYTES = 64 << 20
"""A single dump of more is extracted by all processes: minutes of wikitext on one core."""
_BATCH_CHARACTERS = 4 << 20
"""Wikitext that a process extracts at a time: a second or two."""
_NAME_BYTES = 160
"""Kept of a file's name in those of its Parquet file and lock: a name has at most 255."""


@dataclass(frozen=True, slots=True)
class ExtractionTask:
    """One raw file to extract to one Parquet file."""

    source: Source
    mark: str
    """Fingerprint of the file and of the code that reads it."""
    directory: Path

    @property
    def target(self) -> Path:
        """The Parquet file."""
        return self.directory / f"{kept_name(self.source.name)}-{self.mark}.parquet"

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


def kept_name(name: str) -> str:
    """The part of a Parquet file's name that is taken from its file."""
    return name.encode()[:_NAME_BYTES].decode(errors="ignore")  # the cut may be inside a character


def extract(
    sources: list[Source], directory: Path, executor: Executor, part: tuple[int, int] = (1, 1)
) -> list[Source]:
    """Return the sources, with Parquet files under `directory` in place of those to be extracted.

    Extracts the missing ones, and fetches published ones first. part: of a job array, does its
    share of the files first. Raises DataError if a file has changed since it was extracted.
    """
    tasks = {source: _task(source, directory) for source in sources if is_extracted(source)}
    if not tasks:
        return sources
    make_directory(directory)
    remove_temporaries(directory)  # only those of dead processes
    stage: Stage[ExtractionTask] = Stage(directory, _start)
    every = [*dict.fromkeys(tasks.values())]
    large = [
        task
        for task in unfinished(stage, every)
        if task.source.format == "mediawiki" and task.weight > SHARED_DUMP_BYTES
    ]
    if len(large) == 1:
        _share_dump(large[0], executor)
    executor.take(stage, every, part)
    # Files in a new state, and those that differ only in the middle: they have one Parquet file,
    # which holds one of them.
    new = [task for task in every if _is_new(task)]
    for _ in executor.results(Stage(None, _start_identifying), new):
        pass
    remove_copies(task.source.published for task in every if task.source.published)
    return [_made(source, tasks[source]) if source in tasks else source for source in sources]


def _task(source: Source, directory: Path) -> ExtractionTask:
    # By base name: the folders are the user's path to the file, not part of its identity.
    bare = replace(source, name=Path(source.name).name)
    return ExtractionTask(bare, _mark(bare, as_found=True), directory)


def _is_new(task: ExtractionTask) -> bool:
    """True if the raw file is here in a state in which it was never hashed."""
    source = task.source
    is_gone = source.published is not None and not is_here(source.published)
    return not is_gone and not is_known(source, task.target)


def _start_identifying() -> Callable[[ExtractionTask], None]:
    return _identify


def _identify(task: ExtractionTask) -> None:
    """Hash a raw file. Raises DataError if its Parquet file was extracted from other content."""
    identify(task.source, task.target)


def _start() -> Callable[[ExtractionTask], None]:
    return _extract_file


def _extract_file(task: ExtractionTask) -> None:
    """Make the Parquet file of a raw file."""
    with _making(task) as (source, path, metadata):
        format = format_of(source)
        if isinstance(format, PieceFormat):
            pieces = (piece for file in source.files for piece in cut(file, sys.maxsize))
            tables = piece_tables(pieces, named=source.group is not None)
        else:
            tables = extract_tables(format.read(source, task.directory))
        if not is_finished(source):
            write_documents(tables, source, path, metadata)
            return
        with _removed(temporary_path(task.target)) as unfinished_path:
            write_documents(tables, source, unfinished_path, {})
            write_documents(finished(source, unfinished_path), source, path, metadata)


def finished(source: Source, path: Path) -> Iterator[pa.Table]:
    """The documents that were written to `path` as `SlowFormat.finish` changes them."""
    format = format_of(source)
    assert isinstance(format, SlowFormat) and format.finish
    domains = pq.read_table(path, columns=["domain"])["domain"]
    if domains.null_count == len(domains):
        return stored_tables(path)  # an archive without pages
    return extract_tables(format.finish(source, lambda: stored_records(path)))


@contextmanager
def _removed(path: Path) -> Iterator[Path]:
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def _making(task: ExtractionTask) -> Iterator[tuple[Source, Path, dict[bytes, str]]]:
    """The raw file, which is fetched if it is not here, and where and with which metadata its
    Parquet file is written. The copy of a published file is removed after that."""
    source = task.source
    if source.published is not None:
        copy = fetched(source.published)
        source = replace(source, path=str(copy), found=FoundAs(copy.stat().st_mtime_ns))
    # Where locks have no effect, another process may be reading the file by then.
    with whole_file(task.target, replaces=False) as path, unchanged([source]):
        content = identify(source, task.target)
        # The file's ends are hashed again: it may have been replaced since it was found.
        if _mark(source) != task.mark:
            raise DataError(CHANGED.format(source.path))
        marks = {EXTRACTION_MARK: task.mark, CONTENT_MARK: " ".join(content.hashes)}
        yield source, path, marks
    if source.published is not None:
        remove_copies([source.published])


# --- a single large dump


@dataclass(frozen=True, slots=True)
class _Batch:
    """Pages of a dump that follow each other."""

    number: int
    weight: int
    """Bytes of the file that were read for them."""
    pages: list[RawPage] = field(repr=False)

    @property
    def name(self) -> str:
        return f"pages, batch {self.number}"


def _share_dump(task: ExtractionTask, executor: Executor) -> None:
    """Read a dump in this process, and extract its pages in all processes."""
    with hold_lock(lock_of(task.target)) as lock:
        if lock is None or task.target.exists():  # of another part of the array
            return
        with _making(task) as (source, path, metadata):
            batches = executor.runner(Stage(None, _start_pages), _batches(source))
            done = with_progress(batches, lambda found: found[0].weight, source.size, 0)
            write_documents(_in_order(done), source, path, metadata)


def _batches(source: Source) -> Iterator[_Batch]:
    with naming(source.path), Path(source.path).open("rb") as file:
        blocks: Iterable[bytes] = iter(lambda: file.read(BLOCK_BYTES), b"")
        if source.compression:
            blocks = decompressed(file, source.compression)
        pages: list[RawPage] = []
        size = number = read_to = 0
        for page in find_pages(source.path, blocks):
            pages.append(page)
            size += len(page.revision.get("text", ""))
            if size >= _BATCH_CHARACTERS:
                yield _Batch(number, file.tell() - read_to, pages)
                pages, size, number, read_to = [], 0, number + 1, file.tell()
        yield _Batch(number, file.tell() - read_to, pages)


def _start_pages() -> Callable[[_Batch], pa.Table]:
    return _extract_pages


def _extract_pages(batch: _Batch) -> pa.Table:
    return pa.concat_tables(extract_tables(map(extract_page, batch.pages)))


def _in_order(results: Iterable[tuple[_Batch, pa.Table]]) -> Iterator[pa.Table]:
    """The tables of batches in the order of the file; those that are finished early wait."""
    waiting: dict[int, pa.Table] = {}
    number = 0
    for batch, table in results:
        waiting[batch.number] = table
        while number in waiting:
            yield waiting.pop(number)
            number += 1


# --- names


def _mark(source: Source, *, as_found: bool = False) -> str:
    """The fingerprint of a file and of the code that reads it; as_found: see
    `identity_of_group`."""
    format = format_of(source)
    by_settings = source.format == "zip" or isinstance(format, PieceFormat)
    return fingerprint(
        {
            "format": source.format,
            "columns": SCHEMA.names,
            "code": format.code,
            "pages_per_domain": 0,  # of 0.2.0, whose extracted files stay valid
            "file": [source.name, source.size, content_identity(source)],
        }
        # Each key only where it matters, so that others' marks do not change with it.
        | ({"language": source.page_language} if source.page_language else {})
        | ({"files": identity_of_group(source, as_found=as_found)} if source.group else {})
        | ({"members": READERS} if source.format in ("zip", PACK) else {})
        | ({"reading": _reading(source)} if by_settings else {})
        | ({"fields": 2} if by_settings and keeps_fields(source) else {})
    )


def _reading(source: Source) -> list[Any]:
    """Settings and versions that decide how a file, or those in an archive, are read."""
    reading = [source.text_field, source.plain_text, READING_VERSION]
    has_bzip2 = any(compression == "bz2" for _, compression, _, _ in source.kinds)
    return [*reading, BZIP2_VERSION] if has_bzip2 else reading


def _made(source: Source, task: ExtractionTask) -> Source:
    made = task.target.stat()
    raw = source
    if source.published and is_here(source.published):
        raw = replace(source, found=FoundAs(state_of(source)[1]))
    return replace(
        source,
        path=str(task.target.absolute()),
        size=made.st_size,
        format=EXTRACTED,
        compression="",
        found=FoundAs(made.st_mtime_ns),
        published=None,
        group=None,
        raw=raw,
    )


def extracted_so_far(sources: list[Source], directory: Path) -> list[Source]:
    """The result of `extract`, with sources whose files do not exist yet left as they are."""
    there = {*directory.glob("*.parquet")}
    found = []
    for source in sources:
        task = _task(source, directory) if is_extracted(source) else None
        found.append(_made(source, task) if task and task.target in there else source)
    return found


def not_extracted(sources: list[Source], directory: Path) -> list[Source]:
    """The slow sources whose Parquet files do not exist yet."""
    there = {path.name for path in directory.glob("*.parquet")}
    tasks = [_task(source, directory) for source in sources]
    return [source for source, task in zip(sources, tasks) if task.marker not in there]

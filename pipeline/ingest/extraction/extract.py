"""Files are extracted once, to Parquet files that every recipe reads; JSON lines need not be.

A Wikipedia dump takes core-hours to become text, and a million small files take hours to be found.
So `prepare` and `train_tokenizer` first write
`$TENFOLD_ROOT/documents/<file>-<fingerprint>.parquet` for each file that is not JSON lines, Parquet
or Arrow, and read that from then on. Small files come in groups (`packs`). The fingerprint covers
the file, whatever its folder, and the version of its reader. Inside the Parquet file is the
fingerprint that shards depend on; it covers the code for markup only if an archive was found to
hold some. A large file is extracted in units of minutes, which a restart keeps (`units`); then its
own file is put together from them, and they are removed. A file appears only when it is complete;
if several processes need the same one (parts of an array), one writes it and the others wait.

A published file that is not here is fetched and extracted by one process, so that few copies take
disk space at a time. Processes that have nothing else to do help: they take its last units.

Every record has a row, with its text or with the reason why it was dropped, so the counts of
documents always add up.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.base.errors import DataError
from pipeline.base.files import (
    is_locked,
    make_directory,
    one_at_a_time,
    remove_temporaries,
    whole_file,
)
from pipeline.config.settings import fingerprint
from pipeline.execution.ledger import lock_of, only_once
from pipeline.execution.workers import Executor, Stage, share, unfinished
from pipeline.ingest.documents.json_lines import keeps_fields
from pipeline.ingest.documents.parquet import CONTENT_MARK, EXTRACTION_MARK
from pipeline.ingest.documents.read import (
    BZIP2_VERSION,
    READERS,
    READING_VERSION,
    content_identity,
)
from pipeline.ingest.documents.records import EXTRACTED, FoundAs, Source
from pipeline.ingest.documents.unchanged import (
    CHANGED,
    RawContent,
    identify,
    is_known,
    state_of,
    unchanged,
)
from pipeline.ingest.extraction.document_tables import SCHEMA
from pipeline.ingest.extraction.packs import PACK, identity_of_group
from pipeline.ingest.extraction.tasks import (
    ExtractionTask,
    FileWork,
    HelpTask,
    IdentificationTask,
    UnitTask,
    UnitWork,
)
from pipeline.ingest.extraction.unit_files import is_unit_of, write_file, write_unit
from pipeline.ingest.extraction.units import (
    PieceFormat,
    SlowFormat,
    Unit,
    cut_units,
    expected_units,
    format_of,
    is_extracted,
)
from pipeline.remote.copies import fetched, is_here, remove_copies

_GROUP_BYTES = 256 << 30  # raw files whose units wait on the disk at a time


def extract(
    sources: list[Source], directory: Path, executor: Executor, part: tuple[int, int] = (1, 1)
) -> list[Source]:
    """Return the sources, with Parquet files under `directory` in place of those to be extracted.

    Extracts the missing ones, and fetches published ones first. part: of a job array, does its
    share of the files before it helps with the others. Raises DataError if a file has changed since
    it was extracted.
    """
    slow = [source for source in sources if is_extracted(source)]
    made = _make_files(slow, directory, executor, part)
    return [made.get(source, source) for source in sources]


def _make_files(
    slow: list[Source], directory: Path, executor: Executor, part: tuple[int, int]
) -> dict[Source, Source]:
    """The sources with what `extract` makes from them."""
    if not slow:
        return {}
    make_directory(directory)
    remove_temporaries(directory)  # only those of dead processes
    _remove_used_units(directory)
    tasks = [_task(source, directory) for source in slow]
    work: list[FileWork] = [*tasks]
    waiting = {task.marker for task in unfinished(Stage(directory, _start_files), work)}
    # A process may have died between making a file and removing its copy.
    _remove_copies([task for task in tasks if task.marker not in waiting])
    _identify([task for task in tasks if task.marker not in waiting], directory, executor)
    # Its own share first; the call below helps with what other parts have not finished.
    if part != (1, 1):
        _extract_files(share(tasks, *part), directory, executor, part)
    _extract_files(tasks, directory, executor, part)
    # Files that differ only in the middle have one Parquet file, which holds one of them.
    _identify([task for task in tasks if task.marker in waiting], directory, executor)
    return {source: _made(source, task) for source, task in zip(slow, tasks)}


def _task(source: Source, directory: Path) -> ExtractionTask:
    # By base name: the folders are the user's path to the file, not part of its identity.
    bare = replace(source, name=Path(source.name).name)
    return ExtractionTask(bare, _mark(bare, has_markup=True, as_found=True), directory)


def _remove_used_units(directory: Path) -> None:
    """Remove units whose file exists; a process died before it could."""
    for path in directory.glob(".*.parquet"):
        if (directory / f"{path.name[1:].rsplit('.', 2)[0]}.parquet").exists():
            _remove_unit(path)


def _remove_unit(path: Path) -> None:
    path.unlink(missing_ok=True)
    lock_of(path).unlink(missing_ok=True)  # a process that waits for it finds the whole file


def _extract_files(
    tasks: list[ExtractionTask], directory: Path, executor: Executor, part: tuple[int, int]
) -> None:
    for group in _groups([*dict.fromkeys(tasks)]):
        shared = {task: cut_units(task.source) for task in group if task.can_share}
        shared = {task: cut for task, cut in shared.items() if len(cut) > 1}
        units: list[UnitWork] = [UnitTask(task, unit) for task in shared for unit in shared[task]]
        stage: Stage[UnitWork] = Stage(directory, _start_units)
        waiting = {*unfinished(stage, units)}
        # Units of these are left from before, perhaps of other content.
        begun = [*dict.fromkeys(unit.file for unit in units if unit not in waiting)]
        _identify(begun, directory, executor)
        for task in begun:
            _remove_other_units(task, shared[task], identify(task.source, task.target))
        # Each part starts elsewhere, so that they meet late.
        first = len(units) * (part[0] - 1) // part[1]
        # Others are hashed along with the units: one process hashes a file, and files may be few.
        executor.run(stage, [*_unidentified(shared), *units[first:], *units[:first]])
        files: list[FileWork] = [*group, *_help_with(group)]
        executor.run(Stage(directory, _start_files), files)


def _help_with(tasks: list[ExtractionTask]) -> list[HelpTask]:
    """Help with the published files that are to be fetched, each from its end."""
    return [
        HelpTask(task, unit)
        for task in tasks
        if not task.is_here and not task.target.exists()
        # The process that makes the file goes through its units from the start.
        for unit in reversed(expected_units(task.source))
    ]


def _groups(tasks: list[ExtractionTask]) -> list[list[ExtractionTask]]:
    """Files that are in units at the same time, so that not all of them wait on the disk."""
    groups: list[list[ExtractionTask]] = []
    size = _GROUP_BYTES
    for task in tasks:
        if size >= _GROUP_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(task)
        size += task.weight
    return groups


def _identify(tasks: list[ExtractionTask], directory: Path, executor: Executor) -> None:
    """Hash the files that are here in a new state. Raises DataError if one was extracted from
    other content."""
    if new := _unidentified(tasks):
        executor.run(Stage(directory, _start_units), new)


def _unidentified(tasks: Iterable[ExtractionTask]) -> list[UnitWork]:
    return [
        IdentificationTask(task)
        for task in dict.fromkeys(tasks)
        if task.is_here and not is_known(task.source, task.target)
    ]


def _remove_other_units(task: ExtractionTask, units: list[Unit], content: RawContent) -> None:
    for unit in units:
        path = task.stored(unit)
        with suppress(FileNotFoundError):  # another process may remove it at any moment
            if not is_unit_of(content, path):
                path.unlink()


def _start_units() -> Callable[[UnitWork], None]:
    return _extract_unit_or_identify


def _extract_unit_or_identify(task: UnitWork) -> None:
    """Make the file of a unit, unless another process makes it or has made it; or hash a file."""
    if isinstance(task, IdentificationTask):
        identify(task.file.source, task.file.target)
        return
    with only_once(task.target, task.file.target) as temporary:
        if temporary:
            write_unit(task.unit, (task.unit.start, 0), temporary)


def _start_files() -> Callable[[FileWork], None]:
    return _do_file_or_help


def _do_file_or_help(task: FileWork) -> None:
    if isinstance(task, HelpTask):
        _help(task)
        return
    if is_locked(lock_of(task.target)):  # another part of the array makes it
        for help in _help_with([task]):
            _help(help)
    _extract_file(task)


def _help(task: HelpTask) -> None:
    """Make the file of a unit, unless it or the whole file is made by then."""
    # The process that makes the file waits for the unit's lock, so its copy stays until then.
    target, path = task.file.target, task.file.stored(task.unit)
    if target.exists():
        return
    with one_at_a_time(lock_of(path)):
        if not (path.exists() or target.exists()):
            source = _with_file(task.file.source)
            unit = replace(task.unit, source=source)
            if unit in cut_units(source):  # they were expected before the file was here
                with whole_file(path) as temporary:
                    write_unit(unit, (unit.start, 0), temporary)
    if target.exists() or not path.exists():
        _remove_unit(path)


def _with_file(source: Source) -> Source:
    """The source with a file to read: a published one is fetched if it is not here."""
    if source.published is None:
        return source
    path = fetched(source.published)
    return replace(source, path=str(path), found=FoundAs(path.stat().st_mtime_ns))


def _remove_copies(tasks: list[ExtractionTask]) -> None:
    remove_copies(task.source.published for task in tasks if task.source.published)


def _extract_file(task: ExtractionTask) -> None:
    """Make the file of `task`, unless another process makes it or has made it."""
    try:
        units = _write_file(task)
    except (DataError, OSError):
        # Where locks have no effect, another process may finish, and remove the copy, meanwhile.
        if not task.target.exists():
            raise
        units = []
    for unit in units:
        _remove_unit(task.stored(unit))
    _remove_copies([task])


def _write_file(task: ExtractionTask) -> list[Unit]:
    """Returns the units that are in the file now; none if another process made it."""
    units: list[Unit] = []
    with only_once(task.target) as temporary:
        if temporary:
            source = _with_file(task.source)
            with unchanged([source]):
                content = identify(source, task.target)
                # The file's ends are hashed again: it may have been replaced since it was found.
                if _mark(source, has_markup=True) != task.mark:
                    raise DataError(CHANGED.format(source.path))
                units = cut_units(source)
                _remove_other_units(task, units, content)
                metadata = functools.partial(_metadata, source, content)
                write_file(source, units, task.stored, metadata, temporary)
    return units


def _metadata(source: Source, content: RawContent, has_markup: bool) -> dict[bytes, str]:
    """Metadata on the file's source, which identify it in the fingerprints of shards."""
    mark = _mark(source, has_markup=has_markup)
    return {EXTRACTION_MARK: mark, CONTENT_MARK: " ".join(content.hashes)}


def _mark(source: Source, *, has_markup: bool, as_found: bool = False) -> str:
    """The fingerprint of a file and of the code that reads it.

    has_markup: an archive of texts holds markup, or may hold some; as_found: see
    `identity_of_group`.
    """
    format = format_of(source)
    by_settings = source.format == "zip" or isinstance(format, PieceFormat)
    markup = format.markup if isinstance(format, SlowFormat) and has_markup else None
    return fingerprint(
        {
            "format": source.format,
            "columns": SCHEMA.names,
            "code": format.code,
            "file": [source.name, source.size, content_identity(source)],
        }
        # Each key only where it matters, so that others' marks do not change with it.
        | ({"language": source.page_language} if source.page_language else {})
        | ({"files": identity_of_group(source, as_found=as_found)} if source.group else {})
        | ({"members": READERS} if source.format in ("zip", PACK) else {})
        | ({"reading": _reading(source)} if by_settings else {})
        | ({"markup": markup.codes} if markup else {})
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

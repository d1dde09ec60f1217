"""Inputs that change while shards are made of them, or afterwards.

Work keeps the state of each file, and parts the spans that they read, see `content`. A file in
another state is compared with the spans that were read of it, by whoever notices first: a run that
continues, a worker before its next task, the process that publishes, or a later command that finds
the shards complete. Equal content costs no work, other content is refused. The raw file of an
extracted one is compared with what was extracted, at the same times, see `raw_content`.

The output keeps the spans in `inputs.parquet`, and the states, which differ from copy to copy, in
`.inputs.json`, so that equal inputs give an equal manifest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.base.errors import DataError
from pipeline.base.files import one_at_a_time, whole_file, write_whole
from pipeline.data.documents.content import (
    State,
    changed_files,
    found_state,
    has_content,
    state_now,
)
from pipeline.data.documents.records import EXTRACTED, ReadSpan, Source
from pipeline.data.extraction.raw_content import identify, raw_file
from pipeline.data.text.tasks import SplitTask

INPUTS = "inputs.parquet"
"""In a directory of shards: what was read of each input file, in order."""
INPUTS_SCHEMA = pa.schema(
    [
        pa.field("corpus", pa.dictionary(pa.int32(), pa.string())),
        pa.field("file", pa.dictionary(pa.int32(), pa.string())),
        pa.field("start", pa.int64()),
        pa.field("stop", pa.int64()),
        pa.field("xxh3_64", pa.string()),
    ]
)
_STATES = ".inputs.json"
_UNREAD: tuple[ReadSpan, ...] = ()


class SpanIndex:
    """Spans by corpus and name of their file."""

    def __init__(self, spans: Iterable[ReadSpan]) -> None:
        self.spans: dict[tuple[str, str], list[ReadSpan]] = {}
        for span in spans:
            self.spans.setdefault((span.corpus, span.file), []).append(span)

    def of(self, source: Source) -> Iterable[ReadSpan]:
        """What was read of a file."""
        return self.spans.get((source.corpus, source.name), _UNREAD)


def read_spans(work: Path, tasks: Iterable[SplitTask] | None = None) -> list[ReadSpan]:
    """What finished parts in `work` have read; tasks: of these, in order (None: of all)."""
    last: dict[str, Path] = {}  # the last part of a task knows what those before it have read
    for path in sorted(work.glob("part-*.json")):
        last[path.name.split("-")[1]] = path
    if tasks is None:
        paths = list(last.values())
    else:
        paths = [last[number] for task in tasks if (number := f"{task.number:06d}") in last]
    return [ReadSpan(*row) for path in paths for row in json.loads(path.read_bytes())["read"]]


def compare_with_work(sources: list[Source], work: Path) -> None:
    """Keep the files' states with the work, and compare with those of the run that began it.

    Raises DataError if parts were made of other content.
    """
    path = work / "inputs.json"
    with one_at_a_time(work / "inputs.lock"):
        _compare(sources, path, lambda: read_spans(work), work.parent)
        states = _states(sources)
        if not path.exists() or json.loads(path.read_bytes()) != states:
            write_whole(path, json.dumps(states).encode())


def compare_with_shards(sources: list[Source], output: Path) -> None:
    """Raises DataError if complete shards were made of other content."""
    path = output / _STATES
    if _compare(sources, path, lambda: _read_inputs(output), output):
        with suppress(OSError, DataError):  # the shards may be read-only
            write_whole(path, json.dumps(_states(sources)).encode())


def confirm(sources: list[Source], spans: Iterable[ReadSpan], output: Path) -> list[Source]:
    """The files whose state is not the one in which they were found.

    Raises DataError if one, or its raw file, has other content than what was read of it.
    """
    _compare_raw(sources)
    changed = changed_files(sources)
    if changed:
        index = SpanIndex(spans)
        for source in changed:
            _require(source, state_now(source)[0], index.of(source), output)
    return changed


def write_inputs(sources: list[Source], spans: Iterable[ReadSpan], output: Path) -> None:
    """Write what was read, and the files' states at this moment."""
    columns = zip(*spans) if spans else [[]] * len(INPUTS_SCHEMA)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, INPUTS_SCHEMA)]
    with whole_file(output / INPUTS) as temporary:
        pq.write_table(pa.table(arrays, schema=INPUTS_SCHEMA), temporary, compression="zstd")
    states = {_key(source): state_now(source) for source in sources if source.format != EXTRACTED}
    write_whole(output / _STATES, json.dumps(states).encode())


def _read_inputs(output: Path) -> list[ReadSpan]:
    rows = pq.read_table(output / INPUTS).to_pylist()
    return [ReadSpan(**row) for row in rows]


def _compare(
    sources: list[Source], states: Path, spans: Callable[[], list[ReadSpan]], output: Path
) -> bool:
    """Compare the files that are not in the state that the file `states` has; whether there are."""
    before: dict[str, Any] = json.loads(states.read_bytes()) if states.exists() else {}
    now = _states(sources)
    changed = [source for source in sources if before.get(key := _key(source)) != now.get(key)]
    # Of these the raw file counts; its hash is in them.
    extracted = [source for source in sources if source.format == EXTRACTED]
    if changed or extracted:
        index = SpanIndex(spans())
        for source in changed + extracted:
            _require(source, source.size, index.of(source), output)
    return bool(changed)


def _require(source: Source, size: int, spans: Iterable[ReadSpan], output: Path) -> None:
    if size != source.size or not has_content(source, spans):
        path = (source.raw or source).path
        raise DataError(
            f"{path} has changed since {output} was made from it; restore it, or name another "
            "--output to prepare it as it is now"
        )


def _compare_raw(sources: Iterable[Source]) -> None:
    """Raises DataError if a raw file holds other bytes than were extracted from it."""
    for source in sources:
        raw = raw_file(source)
        if raw and changed_files([raw]):
            identify(raw, Path(source.path))


def _states(sources: list[Source]) -> dict[str, list[int]]:
    return {
        _key(source): [*found_state(source)] for source in sources if source.format != EXTRACTED
    }


def _key(source: Source) -> str:
    return f"{source.corpus}/{source.name}"


class InputWatch:
    """Looks at files before they are read, in one process."""

    def __init__(self) -> None:
        self.accepted: dict[Source, State] = {}
        """Other states of files whose content is the same."""

    def look(self, sources: Collection[Source], work: Path) -> None:
        """Raises DataError if a file has other content than what parts in `work` were made of."""
        _compare_raw(sources)
        for source in sources:
            now = state_now(source)
            if now in (found_state(source), self.accepted.get(source)):
                continue
            _require(source, now[0], SpanIndex(read_spans(work)).of(source), work.parent)
            self.accepted[source] = now

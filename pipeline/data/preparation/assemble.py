"""Finished parts -> a prepared directory: shards, merged validation, documents, the manifest.

Every step can be repeated: train shards are assembled once, and everything else is written again
from the parts, of which all but the train rows and masks are kept until the manifest exists.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.base.errors import DataError
from pipeline.base.files import remove_temporaries, sync_directory, whole_file, write_whole
from pipeline.data.preparation.worker import PrepareJob, part_marker
from pipeline.data.rows.masks import Masking
from pipeline.data.shards import arrow_files
from pipeline.data.shards.corpus_warnings import unknown_share
from pipeline.data.shards.document_index import DOCUMENTS, DOCUMENTS_SCHEMA, REPEATED
from pipeline.data.shards.manifest import (
    INPUTS,
    MANIFEST,
    TRAIN,
    VALIDATION,
    Manifest,
    MaskFile,
    Shard,
    hash_file,
    mask_file,
    rows_file,
    shard_name,
    stored_masks,
)
from pipeline.data.shards.shard_assembly import Assembly
from pipeline.data.shards.token_counts import TOKEN_COUNTS
from pipeline.data.text.documents import DocumentCounts
from pipeline.data.text.text_tasks import SplitTask
from pipeline.execution.threads import do_on_threads, on_threads
from pipeline.ingest.documents.records import ReadSpan, Source
from pipeline.ingest.documents.unchanged import compare, state_of
from pipeline.ingest.documents.where import with_line

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
"""The files' states, apart since they differ from copy to copy: equal inputs, equal manifest."""
MOST_UNKNOWN = 0.1
"""Share of a corpus's characters that may be in unknown tokens without --allow-unknown."""
VALIDATION_ROWS = 32_768
"""Rows of a validation shard at most; each split has only a few, so they are merged."""


@dataclass(frozen=True, slots=True)
class Part:
    """A finished part as its marker describes it."""

    stem: str
    task: int
    corpus: str
    shards: list[dict[str, Any]]
    counts: DocumentCounts

    def of(self, split: str) -> list[dict[str, Any]]:
        """Its shard of one split, if it has one."""
        return [entry for entry in self.shards if entry["split"] == split]


def read_parts(directory: Path, tasks: list[SplitTask]) -> list[Part]:
    """The parts of all tasks, in order; every task must be finished."""
    found = on_threads(partial(_read_parts, directory), tasks)
    return list(itertools.chain.from_iterable(found))


def _read_parts(directory: Path, task: SplitTask) -> list[Part]:
    parts = []
    for number in range(json.loads((directory / task.marker).read_bytes())):
        marker = part_marker(directory, task.number, number)
        content = json.loads(marker.read_bytes())
        content.pop("read", None)  # see `read_spans`
        parts.append(
            Part(
                marker.name.removesuffix(".json"),
                task.number,
                content.pop("corpus"),
                content.pop("shards"),
                DocumentCounts(**content),
            )
        )
    return parts


def check_bad_records(
    parts: list[Part], sources: list[Source], most: float, split: str = TRAIN
) -> None:
    """Raises DataError if more than the share `most` of all records, or of their text, is unusable.

    sources: all input files, to name the line of a bad record; split: must not be empty.
    """
    total = DocumentCounts()
    for part in parts:
        total.add(part.counts)
    bad = sum(total.bad.values())
    records = total.documents + sum(total.dropped.values()) + bad
    lost = sum(total.taken.get(reason, 0) for reason in total.bad)
    text = total.bytes + sum(total.taken.values())
    if bad > most * records or lost > most * text:
        raise DataError(
            f"{with_line(total.bad_example, sources)} ({bad:,} of {records:,} records and {lost:,} "
            f"of {text:,} bytes are unusable, more than --max-bad-fraction {most}); fix "
            f"{'the function of --map' if total.failed_in_map else 'the input'} or allow more"
        )
    if not any(part.of(split) for part in parts):
        purpose = "train on" if split == TRAIN else "evaluate on"
        raise DataError(f"the input has no text to {purpose}; give more documents")


def check_unknown(parts: list[Part], token: str) -> None:
    """Raise DataError if over `MOST_UNKNOWN` of a corpus's characters are in unknown tokens.

    token: the unknown token.
    """
    for corpus, about in corpus_counts(parts, {part.corpus: "" for part in parts}).items():
        share = unknown_share(about)
        if share > MOST_UNKNOWN:
            raise DataError(
                f"corpus {corpus}: {share:.1%} of the characters are lost in "
                f"{about['unknown']['tokens']:,} {token} tokens, more than {MOST_UNKNOWN:.0%}; "
                "use a tokenizer of this text's scripts (python -m pipeline.train_tokenizer makes "
                "one), or rerun with --allow-unknown, which publishes the finished work"
            )


def make_folders(output: Path, duplicates: int) -> None:
    """Make the folders for rows and masks below `output`; duplicates: the recipe's."""
    stored = range(stored_masks(duplicates, VALIDATION))
    folders = [(output / mask_file("", number)) for number in stored] + [output / rows_file("")]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        remove_temporaries(folder)


def plan_assemblies(parts: list[Part], shard_bytes: int) -> list[Assembly]:
    """The train shards, each of the train rows of several parts; shard_bytes: their text at most,
    unless a part has more."""
    groups = _groups(parts, TRAIN, lambda part: part.counts.bytes, shard_bytes)
    return [
        Assembly(
            number,
            sum(part.counts.bytes for part in group),
            tuple(entry for part in group for entry in part.of(TRAIN)),
        )
        for number, group in enumerate(groups)
    ]


def merge_validation_shards(
    work: Path, output: Path, parts: list[Part], job: PrepareJob, masking: Masking
) -> list[Callable[[], Shard]]:
    """Merge the parts' validation rows, in order, into shards of one corpus each.

    Returns what makes each of them, in any process.
    """
    groups = _groups(parts, VALIDATION, _held_out_rows, VALIDATION_ROWS)
    merged = ([entry for part in group for entry in part.of(VALIDATION)] for group in groups)
    return [
        partial(
            _merge_validation, work, output, shard_name(VALIDATION, number), entries, job, masking
        )
        for number, entries in enumerate(merged)
    ]


def _merge_validation(
    work: Path,
    output: Path,
    name: str,
    group: list[dict[str, Any]],
    job: PrepareJob,
    masking: Masking,
) -> Shard:
    """Write one validation shard with its masks."""
    # mapped, and so opened once for all masks
    tables = [*on_threads(arrow_files.read_table, [work / entry["file"] for entry in group])]
    rows = _write(output, rows_file(name), tables[0].schema, tables, job)
    stored = range(stored_masks(job.data.duplicates, VALIDATION))
    return Shard(
        **rows,
        split=VALIDATION,
        sequences=sum(entry["sequences"] for entry in group),
        tokens=sum(entry["tokens"] for entry in group),
        masks=tuple(_draw_masks(output, name, tables, masking, k, job) for k in stored),
    )


def _draw_masks(
    output: Path, name: str, rows: list[pa.Table], masking: Masking, duplicate: int, job: PrepareJob
) -> MaskFile:
    """Draw and write one of the masks of these rows; name: of their shard."""
    predictions: list[int] = []

    def tables() -> Iterator[pa.Table]:
        for table in arrow_files.regroup(rows):
            ids, offsets = arrow_files.ragged(table["input_ids"])
            sequences = table["sequence"].to_numpy()
            masks = masking.draw(ids, offsets, str(table["corpus"][0]), sequences, duplicate)
            predictions.append(masks.predictions)  # filled while `_write` consumes the tables
            yield arrow_files.mask_table(masks)

    ids_type = rows[0].schema.field("input_ids").type.value_type
    schema = arrow_files.masks_schema(np.dtype(ids_type.to_pandas_dtype()), masking.swaps)
    written = _write(output, mask_file(name, duplicate), schema, tables(), job)
    return MaskFile(**written, predictions=sum(predictions))


def _write(
    output: Path, file: str, schema: pa.Schema, tables: Iterable[pa.Table], job: PrepareJob
) -> dict[str, Any]:
    """Write the rows of tables to one file below `output`; returns the manifest's entry."""
    regrouped = arrow_files.regroup(tables)
    written = arrow_files.write_tables(output / file, schema, regrouped, job.compression)
    return written | {"file": file}


def write_documents(work: Path, output: Path, stems: list[str]) -> None:
    """Write documents.parquet: one row per document, part by part, train before validation.

    stems: of the parts.
    """
    with (
        whole_file(output / DOCUMENTS) as temporary,
        pq.ParquetWriter(temporary, DOCUMENTS_SCHEMA, use_dictionary=REPEATED) as writer,
    ):
        paths = [work / f"{stem}.{DOCUMENTS}" for stem in stems]
        for table in on_threads(_read_documents, paths):
            writer.write_table(table)


def _read_documents(path: Path) -> pa.Table:
    """The documents of a part, read at once: a shared file system waits at each read."""
    return pq.read_table(pa.py_buffer(path.read_bytes()), use_threads=False)


def write_inputs(sources: list[Source], spans: list[ReadSpan], output: Path) -> None:
    """Write what was read, and the files' states."""
    columns = [[span[at] for span in spans] for at in range(len(INPUTS_SCHEMA))]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, INPUTS_SCHEMA)]
    with whole_file(output / INPUTS) as temporary:
        pq.write_table(pa.table(arrays, schema=INPUTS_SCHEMA), temporary, compression="zstd")
    write_whole(output / _STATES, json.dumps(_states(sources)).encode())


def compare_inputs(sources: list[Source], output: Path) -> None:
    """Raise DataError if complete shards were made of other content; older ones do not say."""
    if not (output / INPUTS).exists():
        return
    path = output / _STATES
    before = json.loads(path.read_bytes()) if path.exists() else {}
    rows = pq.read_table(output / INPUTS).to_pylist()
    states = (before.get(f"{row['corpus']}/{row['file']}", ()) for row in rows)
    compare(sources, [ReadSpan(*row.values(), *state) for row, state in zip(rows, states)], output)
    # a copy has other dates: kept, so that the next run has nothing to hash
    if before != (now := _states(sources)):
        with suppress(OSError, DataError):  # the shards may be read-only
            write_whole(path, json.dumps(now).encode())


def _states(sources: list[Source]) -> dict[str, list[int]]:
    return {f"{source.corpus}/{source.name}": [*state_of(source)] for source in sources}


def mismatches(work: Path) -> list[str]:
    """Documents with wrong ids from the fast engine; `tokenizers` redid their splits."""
    return [path.read_text() for path in sorted(work.glob("task-*.mismatch"))]


def other_files(output: Path) -> dict[str, dict[str, Any]]:
    """Size and hash of the files that are not shards, for the manifest."""
    # hidden files are temporary ones of another process that publishes the same
    paths = [output / DOCUMENTS, output / INPUTS, *sorted((output / "tokenizer").glob("[!.]*"))]
    paths += output.glob(TOKEN_COUNTS)
    return {
        path.relative_to(output).as_posix(): {
            "bytes": path.stat().st_size,
            "xxh3_64": hash_file(path),
        }
        for path in paths
    }


def corpus_text(parts: list[Part]) -> dict[str, float]:
    """Bytes of cleaned text of each corpus, dropped duplicates and the like included."""
    text: dict[str, float] = {}
    for part in parts:
        size = part.counts.bytes + part.counts.left_out
        text[part.corpus] = text.get(part.corpus, 0) + size
    return text


def corpus_counts(parts: list[Part], licences: dict[str, str]) -> dict[str, Any]:
    """The manifest's entry of each corpus; licences: in the order of the corpora."""
    counts: dict[str, Any] = {}
    parts_of: dict[str, list[Part]] = {corpus: [] for corpus in licences}
    for part in parts:
        parts_of[part.corpus].append(part)
    for corpus, mine in parts_of.items():
        total = DocumentCounts()
        for part in mine:
            total.add(part.counts)
        entries = [entry for part in mine for entry in part.shards]
        counts[corpus] = {
            "documents": total.documents,
            "words": sum(entry["words"] for entry in entries),
            "validation_words": _sum(entries, VALIDATION, "words"),
            "validation_sequences": _sum(entries, VALIDATION, "sequences"),
            "sequences": sum(entry["sequences"] for entry in entries),
            "tokens": sum(entry["tokens"] for entry in entries),
            "bytes": total.bytes,
            "characters": total.characters,
            # zeros, as parts without documents have no counts
            "unknown": {"tokens": 0, "characters": 0} | total.unknown,
            "left_out_bytes": total.left_out,
            "dropped": total.dropped,
            "bad": total.bad,
            "cut": total.cut,
            "noted": total.noted,
            "packed": total.packed,
            "plain_text": total.plain_text,
            "licence": licences[corpus],
        }
        if total.examples:
            counts[corpus]["examples"] = total.examples
    return counts


def write_manifest(output: Path, manifest: Manifest, work: Path) -> None:
    """Write the manifest, which completes the directory, then remove `work`."""
    for folder in {
        (output / file.file).parent for shard in manifest.shards for file in shard.files()
    }:
        sync_directory(folder)  # before the manifest, which says that the files are there
    write_whole(output / MANIFEST, manifest.to_json())
    for left in output.rglob(".*.tmp"):  # of processes of other nodes, which are gone or too late
        left.unlink(missing_ok=True)
    # rmtree would wait for each of thousands of files in turn on a network
    do_on_threads(_remove, work.glob("*.*"))
    shutil.rmtree(work, ignore_errors=True)


def _remove(path: Path) -> None:
    with suppress(OSError):  # what is left only costs disk space
        path.unlink(missing_ok=True)


def _sum(entries: list[dict[str, Any]], split: str, key: str) -> int:
    return sum(entry[key] for entry in entries if entry["split"] == split)


def _held_out_rows(part: Part) -> int:
    return _sum(part.shards, VALIDATION, "sequences")


def _groups(
    parts: list[Part], split: str, size: Callable[[Part], int], most: int
) -> Iterator[list[Part]]:
    """Consecutive parts of one corpus that have a shard of `split`, of up to `most` in size, or a
    single larger one."""
    group: list[Part] = []
    total = 0
    for part in parts:
        if not part.of(split):
            continue
        total += size(part)
        if group and (part.corpus != group[0].corpus or total > most):
            yield group
            group, total = [], size(part)
        group.append(part)
    if group:
        yield group

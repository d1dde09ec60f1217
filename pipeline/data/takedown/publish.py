"""Shards and a request -> new shards: documents.parquet, every shard, the manifest last."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.base.errors import ConfigError, DataError
from pipeline.base.files import remove_temporaries, sync_directory, write_whole
from pipeline.base.typed_json import build
from pipeline.data.shards.document_index import DOCUMENTS, TAKEN_DOWN, DocumentIndex
from pipeline.data.shards.manifest import (
    MANIFEST,
    Manifest,
    Shard,
    check_size,
    hash_file,
    read_manifest,
)
from pipeline.data.shards.shard_task import ShardTask
from pipeline.data.takedown.request import Request
from pipeline.data.takedown.shard import TakedownWorker, copy
from pipeline.execution.ledger import only_once
from pipeline.execution.work_directory import WORK, work_directory
from pipeline.execution.workers import Executor, Stage


def take_down(
    data: Path,
    manifest: Manifest,
    request: Request,
    output: Path,
    executor: Executor,
    part: tuple[int, int] | None = None,
) -> Manifest | None:
    """Write `data` without the documents of `request` to `output`; returns the new manifest.

    What a killed takedown has finished is kept. manifest: of `data`; part: of an array, which does
    its share of the shards first. Returns None if another part will publish the new shards.
    """
    mark = request.fingerprint(manifest.fingerprint)
    try:
        return _take_down(data, manifest, request, output, executor, part, mark)
    except (DataError, OSError):
        # Where locks have no effect, another process may publish, and remove the work, meanwhile.
        if _is_complete(output, mark):
            return read_manifest(output)
        raise


def _take_down(
    data: Path,
    manifest: Manifest,
    request: Request,
    output: Path,
    executor: Executor,
    part: tuple[int, int] | None,
    mark: str,
) -> Manifest | None:
    with work_directory(
        output,
        mark,
        {},
        lambda: _is_complete(output, mark),
        shared=part is not None,
        made_of="--data or --documents",
    ) as work:
        if work is None:
            return read_manifest(output)
        # before hours of work on shards that lack a file
        for name, entry in manifest.files.items():
            check_size(data, name, entry["bytes"])
        for folder in _folders(output, manifest):
            folder.mkdir(parents=True, exist_ok=True)
        with only_once(work.path / DOCUMENTS) as temporary:
            if temporary is not None:
                _write_documents(data, temporary, request)
        tasks = [ShardTask(number, shard) for number, shard in enumerate(manifest.shards)]
        worker = TakedownWorker(data, output, work.path, manifest, request.first_sequences)
        stage = Stage(work.path, worker.start)
        if not work.finish(stage, tasks, executor, part):
            return None
        markers = [json.loads((work.path / task.marker).read_bytes()) for task in tasks]
        return _publish(worker, mark, request, markers)


def _publish(
    worker: TakedownWorker, mark: str, request: Request, markers: list[dict[str, Any]]
) -> Manifest:
    """Complete the output once all its shards are written; markers: of all tasks, in order."""
    data, output, manifest = worker.data, worker.output, worker.manifest
    folders = _folders(output, manifest)
    for folder in folders:
        remove_temporaries(folder)
    # a link, so that a run that is killed here finds the work whole
    copy(worker.work / DOCUMENTS, output / DOCUMENTS, linked=True)
    for name in manifest.files:
        if name != DOCUMENTS:
            copy(data / name, output / name)
    new = _new_manifest(manifest, mark, request, markers, output)
    for folder in folders:
        sync_directory(folder)
    write_whole(output / MANIFEST, new.to_json())
    shutil.rmtree(worker.work, ignore_errors=True)
    return new


def _folders(output: Path, manifest: Manifest) -> set[Path]:
    """The folders of the new shards."""
    files = [*manifest.files, *(file.file for shard in manifest.shards for file in shard.files())]
    return {(output / file).parent for file in files}


def _is_complete(output: Path, mark: str) -> bool:
    """True if `output` holds exactly this takedown; ConfigError if it holds other shards."""
    if not (output / MANIFEST).exists():
        return False
    found = read_manifest(output).fingerprint
    if found != mark:
        raise ConfigError(
            f"--output {output} holds other shards (fingerprint {found}, this takedown gives "
            f"{mark}); name a new directory"
        )
    shutil.rmtree(output / WORK, ignore_errors=True)  # of a run that died at the very end
    return True


def _write_documents(data: Path, path: Path, request: Request) -> None:
    """documents.parquet in the same row groups, with the documents marked as taken down.

    These lose their origin, since a URL often holds the title.
    """
    groups = _mark_documents(data, request)
    first = next(groups)
    with pq.ParquetWriter(path, first.schema) as writer:
        writer.write_table(first)
        for group in groups:
            writer.write_table(group)


def _mark_documents(data: Path, request: Request) -> Iterator[pa.Table]:
    """The row groups of the new documents.parquet."""
    ids = pa.array(sorted(id for _, id in request.names), pa.string())
    for table in DocumentIndex(data).tables():
        chosen = table[TAKEN_DOWN].to_numpy().copy()  # Arrow's memory is read-only
        for row in np.flatnonzero(pc.is_in(table["id"], ids).to_numpy()).tolist():
            name = (table["corpus"][row].as_py(), table["id"][row].as_py())
            # an id can be in two corpora, of which one is meant
            chosen[row] |= name in request.names
        origins = pc.if_else(pa.array(chosen), "", table["origin"])
        for column, values in (("origin", origins), (TAKEN_DOWN, pa.array(chosen))):
            table = table.set_column(table.column_names.index(column), column, values)
        yield table


def _new_manifest(
    manifest: Manifest, mark: str, request: Request, markers: list[dict[str, Any]], output: Path
) -> Manifest:
    """The manifest of the new shards; markers: of all tasks, in order."""
    shards = tuple(build(Shard, marker["shard"]) for marker in markers)
    path = output / DOCUMENTS
    documents = {"bytes": path.stat().st_size, "xxh3_64": hash_file(path)}
    takedown = {
        "parent": manifest.fingerprint,
        "documents": request.corpora,
        "sequences": sum(marker["sequences"] for marker in markers),
        "tokens": sum(marker["tokens"] for marker in markers),
    }
    return replace(
        manifest,
        fingerprint=mark,
        engine=manifest.engine | {"mismatches": _without_text(manifest.engine["mismatches"])},
        files=manifest.files | {DOCUMENTS: documents},
        shards=shards,
        takedowns=(*manifest.takedowns, takedown),
    )


def _without_text(mismatches: list[str]) -> list[str]:
    """The messages of engines that differed, without their excerpts of documents."""
    return [message.split(": document ")[0] for message in mismatches]

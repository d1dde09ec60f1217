"""Shards that several tests share, and changes to their files."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import prepare
from pipeline.data.preparation.prepare_arguments import prepare_arguments
from pipeline.data.rows.sentence_rows import Rows
from pipeline.data.shards import arrow_files
from pipeline.data.shards.document_index import DOCUMENTS
from pipeline.data.shards.manifest import MANIFEST, read_manifest
from pipeline.execution.workers import local_executor
from tests.pipeline.preparing import tiny


def prepare_here(tokenizer: Path, output: Path, *words: object) -> Path:
    """Shards for a fixture of many tests: `pipeline.prepare` in this process, as a function."""
    given = prepare_arguments([*map(str, [*words, "--workers", 1, *tiny(tokenizer, output)])])
    prepare.prepare(given, local_executor(1))
    return output


def flip(path: Path, place: int | None = None, bits: int = 4) -> None:
    """Flip bits of a byte of a file, by default of its middle one."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if place is None else place] ^= bits
    path.write_bytes(content)


def with_column(table: pa.Table, name: str, values: Any) -> pa.Table:
    """The table with other values in a column."""
    index = table.schema.get_field_index(name)
    field = table.schema.field(index)
    return table.set_column(index, field, pa.array(values, field.type))


@contextmanager
def edited(directory: Path) -> Iterator[Any]:
    """The content of the directory's manifest, which is written with the changes."""
    content = json.loads((directory / MANIFEST).read_bytes())
    yield content
    (directory / MANIFEST).write_text(json.dumps(content))


def documents_of(directory: Path) -> tuple[pa.Table, np.ndarray]:
    """The documents of prepared shards, and which of them are held out."""
    table = pq.read_table(directory / DOCUMENTS)
    return table, table["first_sequence"].to_numpy() >> np.uint64(32) & np.uint64(1) == 1


def batch_lengths(table: pa.Table) -> list[int]:
    """[record batches] rows of each."""
    return [len(batch) for batch in table.to_batches()]


def train_tables(directory: Path) -> list[pa.Table]:
    """[1 + masks] the training rows of all shards, and each of their masks."""
    shards = read_manifest(directory).of("train")
    files = zip(*(shard.files() for shard in shards))
    tables = ((arrow_files.read_table(directory / file.file) for file in each) for each in files)
    return [pa.concat_tables(each) for each in tables]


def random_rows(
    lengths: Sequence[int], vocabulary: int = 2048, dtype: npt.DTypeLike = np.uint16,
    rng: np.random.Generator | None = None,
) -> Rows:  # fmt: skip
    """Rows of one document each, from id 0 to id 2, with ids from 5 between."""
    offsets, count = np.cumsum([0, *lengths]), len(lengths)
    rng = rng or np.random.default_rng(count)
    ids = rng.integers(5, vocabulary, offsets[-1]).astype(dtype)
    ids[offsets[:-1]], ids[offsets[1:] - 1] = 0, 2
    return Rows(
        ids, offsets, np.zeros(count, np.uint16), np.arange(count + 1, dtype=np.int32),
        np.arange(count), np.arange(count), np.empty((0, 2), np.int64),
        np.zeros(count, np.uint16), np.full(count, -1, np.int8),
    )  # fmt: skip

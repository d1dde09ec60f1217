"""Segments belong to the documents whose ids they hold, in every format and pass."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config.settings import override
from pipeline.data.rows.pack import pack
from pipeline.data.rows.segment_rows import RANDOM_NEXT
from pipeline.data.shards import arrow_files
from pipeline.data.shards.document_index import (
    DOCUMENTS,
    TAKEN_DOWN,
    DocumentIndex,
    document_table,
)
from pipeline.data.shards.segments import taken_tokens
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.recipes import recipe
from tests.pipeline.data.rows.toys import FIRST_ID, random_tokens, with_own_ids

PAIRS = ["data.format=segment_pair", "data.segments.label=next"]
SEPARATORS = 2


@pytest.mark.parametrize(
    ("settings", "draws"),
    [
        ([], 1), (["data.format=doc_sentences"], 1), (PAIRS, 1), (PAIRS, 4),
        (["data.format=sentence_pair", "data.segments.label=next"], 3),
        (["data.format=segment_pair", "data.segments.label=order"], 2),
    ],
)  # fmt: skip
def test_taken_tokens_are_those_of_the_documents(
    settings: list[str], draws: int, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    data = override(recipe("roberta_tiny"), settings).data
    rng = np.random.default_rng(5)
    tables, named = [], []
    for part, count in enumerate((2, 30, 1)):  # as in a validation shard
        base = (2 * part + 1) << 32
        source = with_own_ids(random_tokens(count, 12, 12, 1000))
        rows = pack(data, source, tiny_vocabulary, "news", base, draws)
        sequences = np.arange(base, base + len(rows), dtype=np.uint64)
        content = arrow_files.encode_rows(rows, "news", ["news"], sequences, "none")
        tables.append(pa.ipc.open_file(content).read_all())
        names = [[f"{part}@{i}" for i in range(count)], ["x"] * count, ["y"] * count]
        named.append(document_table("news", names, np.zeros(count, np.uint64), rows, sequences))
    rows, index = pa.concat_tables(tables), pa.concat_tables(named)
    parts = np.repeat(np.arange(3), list(map(len, tables)))
    ids, offsets = arrow_files.ragged(rows["input_ids"])
    documents = 100 * np.repeat(parts, np.diff(offsets)) + ids - FIRST_ID
    owners = np.where(ids >= FIRST_ID, documents, -1)
    every = np.concatenate([100 * part + np.arange(len(n)) for part, n in enumerate(named)])
    if draws > 1 and settings == PAIRS:
        crossing = rows.filter(pa.array(rows["pair_label"].to_numpy() == RANDOM_NEXT))
        assert len(crossing) > 20
    for _ in range(10):
        taken = rng.random(len(index)) < rng.choice([0.03, 0.5])
        pq.write_table(index.append_column(TAKEN_DOWN, pa.array(taken)), tmp_path / DOCUMENTS)
        held = DocumentIndex(tmp_path).documents_of(rows["sequence"].to_numpy())
        found = taken_tokens(rows, held, SEPARATORS)
        assert np.array_equal(found[owners >= 0], np.isin(owners, every[taken])[owners >= 0])


def test_nothing_is_taken_from_prepared_shards(prepared: Path) -> None:
    rows = arrow_files.read_table(prepared / "rows/train-00000.arrow")
    found = DocumentIndex(prepared).documents_of(rows["sequence"].to_numpy())
    assert not taken_tokens(rows, found, SEPARATORS).any()

"""Validation rows of many parts are merged as if one part had all of them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.base.errors import DataError
from pipeline.base.files import temporary_path
from pipeline.data.preparation import assemble
from pipeline.data.preparation.assemble import Part, check_bad_records, check_unknown
from pipeline.data.preparation.worker import PrepareJob
from pipeline.data.rows.masks import Masking
from pipeline.data.shards import arrow_files
from pipeline.data.text.documents import DocumentCounts
from pipeline.recipes import recipe
from tests.pipeline.data.small_shards import batch_lengths, random_rows

SPECIAL = np.arange(2048) < 5


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_merged_shards_are_those_of_all_rows_at_once(
    compression: arrow_files.Compression, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and masks, in a corpus with one shard, which has room for more, and one with two."""
    monkeypatch.setattr(assemble, "VALIDATION_ROWS", 3000)
    data = replace(recipe("roberta_tiny").data, duplicates=2)
    masking = Masking.of(data, SPECIAL, np.ones(2048, np.bool_))
    work, output = tmp_path / "work", tmp_path / "out"
    work.mkdir()
    assemble.make_folders(output, data.duplicates)
    parts, tables = [], []
    rng = np.random.default_rng(0)
    for number, (corpus, count) in enumerate(
        [("a", 500), ("a", 3), ("a", 1500), ("b", 900), ("b", 2100), ("b", 1024)]
    ):
        rows = random_rows(rng.integers(8, 60, count))
        sequences = np.arange(number << 32, (number << 32) + count, dtype=np.uint64)
        path = work / f"{number}.arrow"
        path.write_bytes(arrow_files.encode_rows(rows, corpus, ["a", "b"], sequences, compression))
        entry = {"file": path.name, "split": "validation", "sequences": count, "masks": []}
        entry["tokens"] = len(rows.ids)
        parts.append(Part(str(number), number, corpus, [entry], DocumentCounts()))
        tables.append(arrow_files.read_table(path))
    job = PrepareJob(work, data, ("a", "b"), {}, 1 << 20, compression, "fast")
    merging = assemble.merge_validation_shards(work, output, parts, job, masking)
    merged = [merge() for merge in merging]
    assert [shard.sequences for shard in merged] == [2003, 3000, 1024]
    for shard, group in zip(merged, ([0, 1, 2], [3, 4], [5])):
        whole = pa.concat_tables([tables[number] for number in group]).combine_chunks()
        assert shard.tokens == sum(map(len, whole["input_ids"].to_pylist()))
        found = arrow_files.read_table(output / shard.file)
        assert found.equals(whole) and found.schema == whole.schema
        lengths = [len(batch) for batch in whole.to_batches(max_chunksize=1024)]
        assert batch_lengths(found) == lengths
        ids, offsets = arrow_files.ragged(whole["input_ids"])
        sequences = whole["sequence"].to_numpy()
        corpus = str(whole["corpus"][0])
        for duplicate, file in enumerate(shard.masks):
            drawn = masking.draw(ids, offsets, corpus, sequences, duplicate)
            expected = pa.ipc.open_file(arrow_files.encode_masks(drawn, compression)).read_all()
            written = arrow_files.read_table(output / file.file)
            assert written.equals(expected) and written.schema == expected.schema
            assert batch_lengths(written) == lengths
            assert file.predictions == drawn.predictions
            assert file.bytes == (output / file.file).stat().st_size


def test_unknown_text_of_over_a_tenth_of_a_corpus_is_an_error() -> None:
    """In one of the corpora, over all of its parts."""

    def part(corpus: str, characters: int, hidden: int) -> Part:
        unknown = {"tokens": 2, "characters": hidden}
        return Part("", 0, corpus, [], DocumentCounts(characters=characters, unknown=unknown))

    allowed = [part("a", 100, 12), part("a", 100, 8), part("b", 1000, 1)]
    check_unknown(allowed, "[UNK]")
    with pytest.raises(DataError, match=r"corpus c: 10\.1% .* 4 \[UNK\] .*--allow-unknown"):
        check_unknown([*allowed, part("c", 500, 1), part("c", 500, 100)], "[UNK]")


def test_the_manifest_names_no_file_that_another_process_is_writing(tmp_path: Path) -> None:
    """Where locks exclude nobody, two processes publish the same at the same time."""
    (tmp_path / "tokenizer").mkdir()
    names = ["documents.parquet", "inputs.parquet", "tokenizer/vocab.json"]
    for path in (*names, temporary_path(tmp_path / "tokenizer" / "merges.txt")):
        (tmp_path / path).touch()
    assert [*assemble.other_files(tmp_path)] == names


def test_more_unusable_records_than_allowed_stop_a_run() -> None:
    counts = DocumentCounts(documents=97, bad={"invalid UTF-8": 3}, bad_example="a:7: invalid")
    parts = [Part("0", 0, "news", [{"split": "train"}], counts)]
    check_bad_records(parts, [], 0.03)
    with pytest.raises(DataError, match=r"a:7: invalid \(3 of 100 .* --max-bad-fraction 0\.02"):
        check_bad_records(parts, [], 0.02)

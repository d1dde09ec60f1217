"""inspect shows what the shards contain, and --verify finds every kind of damage."""

import json
from pathlib import Path

from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import read_manifest
from pipeline.data.shards.row_statistics import measure_rows
from pipeline.data.tokenizers.folders import read_vocabulary
from tests.pipeline.data.small_shards import edited, flip, with_column
from tests.pipeline.preparing import Call, rewrite


def test_statistics_are_counted_from_the_files(prepared: Path, show: Call) -> None:
    out = show(prepared)
    manifest = read_manifest(prepared)
    assert f"{manifest.totals['documents']:,} documents" in out
    found = measure_rows(prepared, manifest, read_vocabulary(prepared / "tokenizer"))
    share = found.predictions.sum() / (10 * found.text_tokens)
    assert f"predicted    {share:.4%} of text tokens" in out


def test_missing_damaged_and_other_files_are_named(copy: Path, show: Call) -> None:
    """Also a flipped bit in documents.parquet, and a tokenizer of the same size."""
    path = copy / "tokenizer" / "tokenizer.json"
    before = path.read_text()
    content = json.loads(before)
    ids = content["model"]["vocab"]
    ids["a"], ids["b"] = ids["b"], ids["a"]
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    assert len(text) == len(before)
    path.write_text(text)
    assert "not the tokenizer these shards were made with" in show(copy, code=2)
    path.write_text(before)
    flip(copy / "documents.parquet", 100, 1)
    assert "documents.parquet is damaged" in show(copy, "--verify", code=2)
    for name in ("documents.parquet", "mask-4/train-00001.arrow"):
        (copy / name).rename(copy / "elsewhere")
        assert f"{name} is missing" in show(copy, code=2)
        (copy / "elsewhere").rename(copy / name)


def test_a_wrong_mask_with_a_correct_hash_is_found(copy: Path, show: Call) -> None:
    """From another generator: complete files, correct hashes, wrong masks."""
    path = copy / "mask-2/train-00000.arrow"
    table = arrow_files.read_table(path)
    for column in ("positions", "actions", "random_ids"):
        values = table[column].to_pylist()
        row = next(index for index, value in enumerate(values) if value)
        if column == "random_ids":
            values[row][0] ^= 1
        else:
            values[row] = bytes([values[row][0] ^ 2]) + values[row][1:]
        with edited(copy) as manifest:
            entry = rewrite(path, with_column(table, column, values))
            manifest["shards"][0]["masks"][2] |= entry
        error = show(copy, "--verify", code=2)
        assert f"mask-2/train-00000.arrow: {column} are not what its key draws" in error


def test_a_flipped_bit_in_the_rows_is_never_a_traceback(copy: Path, show: Call) -> None:
    path = copy / "rows/train-00001.arrow"
    for position in (1999, 21_989):
        flip(path, position, 128)
        error = show(copy, "--verify", code=2)
        assert "rows/train-00001.arrow is damaged" in error and error.count("\n") == 1
        flip(path, position, 128)

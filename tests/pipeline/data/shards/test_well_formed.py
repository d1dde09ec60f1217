from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import read_manifest
from pipeline.data.shards.well_formed import wrong_rows
from pipeline.data.tokenizers.folders import read_vocabulary
from tests.pipeline.data.small_shards import with_column

CHANGES: list[tuple[str, Callable[[Any], Any], str]] = [
    ("input_ids", lambda ids: [ids[1], *ids[1:]], "does not start and end with its special"),
    ("input_ids", lambda ids: [*ids[:-1], ids[1]], "does not start and end with its special"),
    ("input_ids", lambda ids: [ids[0], ids[0], *ids[2:]], "a start token inside"),
    ("input_ids", lambda ids: [ids[0], 4, *ids[2:]], "a mask, padding or unknown token"),
    ("input_ids", lambda ids: [ids[0], 2048, *ids[2:]], "has id 2048, but the tokenizer has 2048"),
    ("input_ids", lambda ids: ids[:-1], "tokens, the manifest says 6,260 and"),
    ("sequence", lambda sequence: sequence - 5, "sequence ids do not ascend"),
    ("document_starts", lambda starts: [1, *starts[1:]], "does not start at 0"),
    ("document_starts", lambda starts: [0, 3, 2], "do not ascend inside a row"),
    ("pair_label", lambda _: 7, "a pair label is -1 or 7"),
    ("pair_label", lambda _: 1, "a row of one segment has a pair label"),
    ("second_segment", lambda _: 1, "is outside its row"),
]
"""Column, change of the value in a row, and what is said of it."""


def test_rows_that_are_not_well_formed(prepared: Path) -> None:
    manifest = read_manifest(prepared)
    shard = manifest.of("train")[2]
    rows = arrow_files.read_table(prepared / shard.file)
    vocabulary = read_vocabulary(prepared / "tokenizer")
    assert vocabulary.mask == 4 and vocabulary.size == 2048
    assert not wrong_rows(rows, manifest, shard, vocabulary)
    for column, change, said in CHANGES:
        values = rows[column].to_pylist()
        values[3] = change(values[3])
        changed = with_column(rows, column, values)
        assert said in wrong_rows(changed, manifest, shard, vocabulary), (column, said)

"""Statistics of a prepared directory equal those of a loop over its rows."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.data.inspection.sequences import locate
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import read_manifest
from pipeline.data.shards.row_statistics import measure_rows, read_masks
from pipeline.data.tokenizers.folders import read_vocabulary


@pytest.mark.parametrize("drawn", [False, True])
def test_statistics_do_not_depend_on_how_many_pieces_share_a_file(
    drawn: bool, apart_and_together: tuple[Path, Path]
) -> None:
    """Of stored masks, and of those drawn for the first epochs, for all rows or for one."""
    found, rows = [], []
    for directory in apart_and_together:
        manifest, vocabulary = read_manifest(directory), read_vocabulary(directory / "tokenizer")
        manifest = replace(manifest, duplicates=0) if drawn else manifest
        found.append(asdict(measure_rows(directory, manifest, vocabulary)))
        shard, row = locate(manifest, "train", 333)
        rows.append(read_masks(directory, manifest, shard, vocabulary, row))
    for name, value in found[0].items():
        assert np.array_equal(value, found[1][name]), name
    assert len(rows[0]) == len(rows[1]) == 10
    for one, other in zip(*rows):
        assert np.array_equal(one.positions[0], other.positions[0]) and len(one.positions[1]) == 2
        assert np.array_equal(one.actions[0], other.actions[0])


def test_statistics_match_the_rows(prepared: Path) -> None:
    manifest, vocabulary = read_manifest(prepared), read_vocabulary(prepared / "tokenizer")
    manifest = replace(manifest, shards=manifest.shards[2:9:2])  # news and more, of both splits
    found = measure_rows(prepared, manifest, vocabulary)
    rows, runs = [], 0
    actions = np.zeros((manifest.duplicates, 3), np.int64)  # MASK, RANDOM, KEPT
    for shard in manifest.shards:
        rows += arrow_files.read_table(prepared / shard.file).to_pylist()
        for duplicate, file in enumerate(shard.masks):
            for mask in arrow_files.read_table(prepared / file.file).to_pylist():
                packed = np.frombuffer(mask["positions"], np.uint8)
                bits = np.unpackbits(packed, bitorder="little").astype(np.int8)
                runs += np.count_nonzero(np.diff(bits, prepend=0) == 1)
                codes = np.frombuffer(mask["actions"], np.uint8)[:, np.newaxis] >> [0, 2, 4, 6] & 3
                actions[duplicate] += np.bincount(codes.ravel()[: bits.sum()], minlength=3)
    assert found.lengths.tolist() == [len(row["input_ids"]) for row in rows]
    assert found.documents.tolist() == [len(row["document_starts"]) for row in rows]
    text = sum(not vocabulary.special[token] for row in rows for token in row["input_ids"])
    assert (found.text_tokens, found.runs) == (text, runs)
    assert found.actions.tolist() == actions.tolist()
    assert found.predictions.tolist() == actions.sum(1).tolist()
    assert (sum(found.pairs.values()), found.coins, found.swapped) == (0, 0, 0)

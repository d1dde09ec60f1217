"""No directory of a run trains on documents that another one holds out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline import takedown, train
from pipeline.base.errors import DataError
from pipeline.data.shards.document_index import DOCUMENTS
from pipeline.data.shards.held_out_check import check_held_out
from pipeline.data.shards.manifest import read_manifest
from tests.conftest import Command
from tests.pipeline.preparing import Call, Prepare, tiny, write_jsonl

TEXTS = [f"Text {number} is about {number * number}. It ends here." for number in range(200)]


def check(*directories: Path) -> None:
    check_held_out([(directory, read_manifest(directory)) for directory in directories])


@pytest.fixture
def grown(tmp_path: Path, tiny_tokenizer: Path, run: Prepare) -> tuple[Path, Path]:
    """A corpus, and the same with more documents before its own, so ids differ."""
    for name, texts in (("first", TEXTS[140:]), ("second", TEXTS)):
        source = write_jsonl(tmp_path / f"{name}.jsonl", texts)
        output = tiny(tiny_tokenizer, tmp_path / name)
        run("--corpus", "news", "--input", source, *output, "--set", "data.duplicates=1")
    return tmp_path / "first", tmp_path / "second"


def test_a_grown_corpus_is_not_mixed_with_its_earlier_shards(
    grown: tuple[Path, Path], tmp_path: Path, call: Call, command: Command
) -> None:
    first, second = grown
    with pytest.raises(DataError) as error:
        check(first, second)
    message = str(error.value)
    assert str(first) in message and str(second) in message
    assert "first.jsonl@" in message and "second.jsonl@" in message
    output = tmp_path / "run"
    arguments = ["roberta_tiny", "--data", first, second, "--output", output]
    arguments += ["--set", "data.duplicates=1"]
    refused = call(train.main, *arguments, "--dry-run", code=2)
    assert refused == f"error: {message}\n"
    result = command("train", *arguments)
    assert result.returncode == 2 and result.stderr.splitlines()[-1] == refused.strip()
    assert not (output / "checkpoints").exists()


def test_documents_that_were_taken_down_do_not_conflict(
    grown: tuple[Path, Path], tmp_path: Path, call: Call
) -> None:
    """Neither those that one directory trained on nor those that the other held out."""
    first, second = grown
    kept = {}
    for directory, held_out in ((first, 1), (second, 0)):
        rows = pq.read_table(directory / DOCUMENTS).to_pylist()
        kept[directory] = {
            row["text_hash"]: row["id"]
            for row in rows
            if row["first_sequence"] >> 32 & 1 == held_out
        }
    shared = [kept[second][text] for text in kept[first].keys() & kept[second].keys()]
    new = tmp_path / "new"
    arguments = ["--documents", *shared, "--output", new, "--workers", 1]
    call(takedown.main, "--data", second, *arguments)
    assert shared
    with pytest.raises(DataError, match=f"{new} is {second} without documents that were taken"):
        check(second, new)
    check(first, new)


def test_the_same_documents_in_other_rows_do_not_conflict(
    grown: tuple[Path, Path], tmp_path: Path, tiny_tokenizer: Path, run: Prepare
) -> None:
    """As in phases; also a directory that is given twice."""
    _, second = grown
    output = tiny(tiny_tokenizer, tmp_path / "short")
    settings = ("--set", "data.duplicates=1", "--set", "data.sequence_length=16")
    run("--corpus", "news", "--input", tmp_path / "second.jsonl", *output, *settings)
    check(second, tmp_path / "short")
    check(second, second)


def test_large_hashes_are_found(grown: tuple[Path, Path]) -> None:
    """On both sides of 2^63, since Arrow's filters compare signed numbers by default."""
    first, second = grown
    table = pq.read_table(first / DOCUMENTS)
    held_out = (table["first_sequence"].to_numpy() >> np.uint64(32)) % np.uint64(2) == 1
    other = pq.read_table(second / DOCUMENTS)
    free = (other["first_sequence"].to_numpy() >> np.uint64(32)) % np.uint64(2) == 0
    hashes, others = (part["text_hash"].to_numpy().copy() for part in (table, other))
    hashes[:], others[:] = np.arange(len(hashes)), 1000 + np.arange(len(others))
    hashes[np.flatnonzero(held_out)[0]] = others[np.flatnonzero(free)[-1]] = (1 << 64) - 5
    for part, found, directory in ((table, hashes, first), (other, others, second)):
        changed = part.set_column(part.schema.get_field_index("text_hash"), "text_hash", [found])
        pq.write_table(changed, directory / DOCUMENTS)
    with pytest.raises(DataError, match="holds out for validation"):
        check(second, first)


def test_directories_that_cannot_be_compared_are_refused(grown: tuple[Path, Path]) -> None:
    first, second = grown
    path = first / DOCUMENTS
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["text_hash"]), path)
    with pytest.raises(DataError, match="has no column text_hash: it is damaged, or of a version"):
        check(second, first)
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="is damaged"):
        check(first, second)
    path.unlink()
    with pytest.raises(DataError, match="is missing"):
        check(first, second)
    check(first)  # a single directory cannot disagree with another


def test_the_error_names_the_training_document(grown: tuple[Path, Path]) -> None:
    """A text can be in both splits of one directory, in two corpora, without a conflict."""
    first, second = grown
    table = pq.read_table(second / DOCUMENTS)
    sequences = table["first_sequence"].to_numpy()
    held_out = (sequences >> np.uint64(32)) % np.uint64(2) == 1
    hashes = np.arange(len(table), dtype=np.uint64)
    held, trained = np.flatnonzero(held_out)[0], np.flatnonzero(~held_out)[-1]
    hashes[trained] = hashes[held]
    place = table.schema.get_field_index("text_hash")
    pq.write_table(table.set_column(place, "text_hash", [hashes]), second / DOCUMENTS)
    other = pq.read_table(first / DOCUMENTS)
    theirs = 1000 + np.arange(len(other), dtype=np.uint64)
    pq.write_table(other.set_column(place, "text_hash", [theirs]), first / DOCUMENTS)
    check(first, second)
    sides = (other["first_sequence"].to_numpy() >> np.uint64(32)) % np.uint64(2) == 1
    theirs[np.flatnonzero(sides)[0]] = hashes[held]
    pq.write_table(other.set_column(place, "text_hash", [theirs]), first / DOCUMENTS)
    with pytest.raises(DataError) as error:
        check(first, second)
    assert f"for example news {table['id'][int(trained)]} (" in str(error.value)


def test_hashes_depend_only_on_the_text(grown: tuple[Path, Path]) -> None:
    """Equal texts have equal hashes in both directories, although their ids differ."""
    tables = [pq.read_table(directory / DOCUMENTS) for directory in grown]
    sets = [set(pa.chunked_array(table["text_hash"]).to_pylist()) for table in tables]
    assert len(sets[0]) == 60 and len(sets[1]) == 200 and sets[0] < sets[1]

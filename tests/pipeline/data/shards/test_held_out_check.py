"""No directory of a run trains on documents that another one holds out."""

import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline import train
from pipeline.base.errors import DataError
from pipeline.data.shards.document_index import DOCUMENTS
from pipeline.data.shards.held_out_check import check_held_out
from pipeline.data.shards.manifest import read_manifest
from tests.pipeline.data.small_shards import documents_of, prepare_here, with_column
from tests.pipeline.preparing import Call, write_jsonl

TEXTS = [f"Text {number} is about {number * number}. It ends here." for number in range(200)]
ONE_MASK = ("--set", "data.duplicates=1")


def check(*directories: Path) -> None:
    check_held_out([(directory, read_manifest(directory)) for directory in directories])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Path) -> Path:
    """A corpus, and the same with more documents before its own, so ids differ."""
    folder = tmp_path_factory.mktemp("grown")
    for name, texts in (("first", TEXTS[140:]), ("second", TEXTS)):
        source = write_jsonl(folder / f"{name}.jsonl", texts)
        given = ("--corpus", "news", "--input", source, *ONE_MASK)
        prepare_here(tiny_tokenizer, folder / name, *given)
    return folder


@pytest.fixture
def grown(made: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Both, to be written into."""
    first, second = (shutil.copytree(made / name, tmp_path / name) for name in ("first", "second"))
    return first, second


def test_a_grown_corpus_is_not_mixed_with_its_earlier_shards(
    grown: tuple[Path, Path], tmp_path: Path, call: Call
) -> None:
    """Equal texts have equal hashes in both directories, although their ids differ."""
    first, second = grown
    small, large = (set(documents_of(each)[0]["text_hash"].to_pylist()) for each in grown)
    assert (len(small), len(large)) == (60, 200) and small < large
    with pytest.raises(DataError) as error:
        check(first, second)
    message = str(error.value)
    for part in (str(first), str(second), "first.jsonl@", "second.jsonl@"):
        assert part in message
    arguments = ["roberta_tiny", "--data", first, second, "--output", tmp_path / "run", *ONE_MASK]
    assert call(train.main, *arguments, "--dry-run", code=2) == f"error: {message}\n"


def test_the_same_documents_in_other_rows_do_not_conflict(
    made: Path, tmp_path: Path, tiny_tokenizer: Path
) -> None:
    """As in phases; also a directory that is given twice."""
    given = ("--corpus", "news", "--input", made / "second.jsonl", *ONE_MASK)
    settings = ("--set", "data.sequence_length=16")
    check(made / "second", prepare_here(tiny_tokenizer, tmp_path / "short", *given, *settings))
    check(made / "second", made / "second")


def write_hashes(directory: Path, hashes: np.ndarray) -> None:
    changed = with_column(pq.read_table(directory / DOCUMENTS), "text_hash", hashes)
    pq.write_table(changed, directory / DOCUMENTS)


def test_conflicts_are_found_by_hash(grown: tuple[Path, Path]) -> None:
    """A text can be in both splits of one directory, in two corpora, without a conflict; the error
    names the training document. Hashes are on both sides of 2^63, since Arrow's filters compare
    signed numbers by default."""
    first, second = grown
    (one, one_held), (two, two_held) = (documents_of(directory) for directory in grown)
    theirs = 1000 + np.arange(len(one), dtype=np.uint64)
    hashes = np.arange(len(two), dtype=np.uint64)
    held, trained = np.flatnonzero(two_held)[0], np.flatnonzero(~two_held)[-1]
    for shared in (held, (1 << 64) - 5):
        hashes[trained] = hashes[held] = shared
        write_hashes(second, hashes)
        write_hashes(first, theirs)
        check(first, second)
        other = theirs.copy()
        other[np.flatnonzero(one_held)[0]] = shared
        write_hashes(first, other)
        named = re.escape(f"for example news {two['id'][int(trained)]} (")
        for order in ((first, second), (second, first)):
            with pytest.raises(DataError, match=f"holds out for validation.*{named}"):
                check(*order)


def test_directories_that_cannot_be_compared_are_refused(grown: tuple[Path, Path]) -> None:
    first, second = grown
    path = first / DOCUMENTS
    pq.write_table(pq.read_table(path).drop_columns(["text_hash"]), path)
    with pytest.raises(DataError, match="has no column text_hash"):
        check(second, first)
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="is damaged"):
        check(first, second)
    path.unlink()
    with pytest.raises(DataError, match="is missing"):
        check(first, second)
    check(first)  # a single directory cannot disagree with another

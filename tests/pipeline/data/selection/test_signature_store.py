"""A store is complete or absent, notices damage, and forgets documents that were taken down."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest

from pipeline.base.errors import ConfigError, DataError
from pipeline.data.selection import signature_store
from pipeline.data.selection.signature_store import (
    INDEX,
    EarlierShards,
    SignatureStore,
    clear_signatures,
    read_store,
)
from pipeline.data.selection.survey import read_words, word_names
from tests.damaged_json import changed, damaged

WORDS = range(32)
NAMES = [*word_names(WORDS)]


def signed(documents: int) -> np.ndarray:
    return np.random.default_rng(documents).integers(1 << 63, size=(documents, 32), dtype=np.uint64)


def write_store(directory: Path, *corpora: str, documents: int = 5) -> SignatureStore:
    """A store with a file of two row groups for each corpus; ids a0, a1, ... in each."""
    directory.mkdir(parents=True)
    files = []
    for number, corpus in enumerate(corpora):
        columns = {name: signed(documents)[:, word] for word, name in enumerate(NAMES)}
        ids = [f"a{row}" for row in range(documents)]
        table = pa.table({"id": ids, "dropped": pa.nulls(documents, pa.string())} | columns)
        files.append(directory / f"{number:06d}.parquet")
        signature_store.write_signatures(files[-1], corpus, iter([table[:2], table[2:]]))
    return signature_store.complete_store(directory, files)


def words_of(store: SignatureStore) -> tuple[np.ndarray, list[bool]]:
    words, has = read_words(store.paths, store.documents, WORDS)
    return words, has.tolist()


def test_a_store_is_read_as_surveys_are(tmp_path: Path) -> None:
    store = write_store(tmp_path / "0123", "news", "web")
    assert read_store(tmp_path / "0123") == store and store.documents == 10
    words, has = words_of(store)
    assert (words == np.concatenate([signed(5)] * 2)).all() and has == [True] * 10
    assert store.ids({1, 4, 5, 9}) == {1: "a1", 4: "a4", 5: "a0", 9: "a4"}
    assert EarlierShards("0123", store).identity == ["0123"]
    assert EarlierShards("0123", store).describe() == ("0123", "0123", 10)
    large = write_store(tmp_path / "large", "news", documents=20_000)
    assert sum(file.bytes for file in large.index.files) < 20_000 * (256 + 4)  # with ids
    assert signature_store.is_stored(store.directory)
    (store.directory / INDEX).unlink()
    assert not signature_store.is_stored(store.directory)


def test_a_damaged_index_is_refused(tmp_path: Path) -> None:
    """Unless no entry that was changed is needed: rules differ then, or takedowns are missing."""
    store = write_store(tmp_path / "a", "news")
    path = store.directory / INDEX
    content = path.read_bytes()
    entries = ((what, json.dumps(some).encode()) for what, some in changed(json.loads(content)))
    for what, damage in (*damaged(content), *entries):
        path.write_bytes(damage)
        try:
            signature_store.require_comparable(read_store(store.directory), tmp_path)
            assert what.startswith("taken_down") or read_store(store.directory) == store, what
        except (DataError, ConfigError):
            continue


def test_damage_is_one_line(tmp_path: Path) -> None:
    store = write_store(tmp_path / "a", "news")
    index, file = store.directory / INDEX, store.paths[0]
    entries: dict[str, Any] = json.loads(index.read_text())
    files = [entries["files"][0] | {"file": "../x"}]
    whole = file.read_bytes()
    for text, content, message in (
        ("{", whole, f"{index} is damaged"),
        (json.dumps(entries | {"version": 2}), whole, "this version of Tenfold reads 1"),
        (json.dumps(entries | {"files": files}), whole, "'../x' is not the name of a file"),
        (json.dumps(entries), whole[:-1], "bytes, signatures.json says"),
        (json.dumps(entries), b"", "000000.parquet is missing"),
    ):
        index.write_text(text)
        file.write_bytes(content)
        if not content:
            file.unlink()
        with pytest.raises(DataError) as error:
            read_store(store.directory)
        assert message in str(error.value)
        assert "prepare its shards again with --keep-signatures" in str(error.value)


def test_a_flipped_bit_is_noticed_when_it_is_read(tmp_path: Path) -> None:
    store = write_store(tmp_path / "a", "news")
    content = bytearray(store.paths[0].read_bytes())
    content[content.index(signed(5)[:2, 7].tobytes()) + 3] ^= 1
    store.paths[0].write_bytes(content)
    store = read_store(store.directory)
    with pytest.raises(DataError, match=r"000000\.parquet is damaged: .*CRC"):
        words_of(store)
    assert read_words(store.paths, 5, range(1))[1].all()  # of other pages


def test_a_takedown_clears_its_documents_and_moves_no_other(tmp_path: Path) -> None:
    store = write_store(tmp_path / "a", "news", "web")
    names = {("web", "a0"), ("web", "a3"), ("web", "none"), ("books", "a1")}
    assert clear_signatures(store.directory, names, "mark") == 2
    cleared = read_store(store.directory)
    words, has = words_of(cleared)
    assert has == [True] * 5 + [False, True, True, False, True]
    expected = np.concatenate([signed(5)] * 2)
    expected[[5, 8]] = 0
    assert (words == expected).all()
    assert cleared.ids({5, 6}) == {5: "a0", 6: "a1"}
    assert EarlierShards("x", cleared).identity == ["x", "mark"]
    left = sorted(path.name for path in store.directory.iterdir())
    assert left == ["000000.parquet", "000001-1.parquet", INDEX]
    assert clear_signatures(store.directory, names, "mark") == 0  # the same takedown again
    assert clear_signatures(store.directory, {("web", "a0"), ("news", "a0")}, "other") == 1
    assert read_store(store.directory).index.taken_down == ("mark", "other")
    assert clear_signatures(tmp_path / "none", names, "mark") == 0


def test_a_killed_takedown_leaves_the_old_store_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = write_store(tmp_path / "a", "news")
    die = Mock(side_effect=KeyboardInterrupt)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(signature_store, "_write_index", die)
        clear_signatures(store.directory, {("news", "a1")}, "mark")
    assert read_store(store.directory) == store and all(words_of(store)[1])
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "unlink", die)
        clear_signatures(store.directory, {("news", "a1")}, "mark")
    assert store.paths[0].exists()
    assert words_of(read_store(store.directory))[1] == [True, False, True, True, True]
    assert clear_signatures(store.directory, {("news", "a1")}, "mark") == 0
    assert not store.paths[0].exists()
    with pytest.raises(DataError, match=r"000000\.parquet is gone"):  # while a join read it
        words_of(store)

"""Ids are found in the shards, or refused with one line."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import ConfigError
from pipeline.data.shards.document_index import DOCUMENTS, DOCUMENTS_SCHEMA, TAKEN_DOWN
from pipeline.data.takedown.request import find_documents


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Documents of two corpora; the second has an id of the first, and one that is gone."""
    names = [("news", "a@0"), ("news", "b c.txt"), ("web", "a@0"), ("web", "d@7")]
    table = pa.Table.from_pylist(
        [
            {
                "id": id,
                "corpus": corpus,
                "origin": id.partition("@")[0],
                "first_sequence": 10 * number,
                "text_hash": number,
            }
            for number, (corpus, id) in enumerate(names)
        ],
        DOCUMENTS_SCHEMA,
    )
    table = table.append_column(TAKEN_DOWN, pa.array([False, False, False, True]))
    pq.write_table(table, tmp_path / DOCUMENTS, row_group_size=2)
    return tmp_path


def test_ids_and_files_of_ids(directory: Path, tmp_path: Path) -> None:
    listed = tmp_path / "list"
    listed.write_text("web\ta@0\r\n\nd@7\n")
    request = find_documents(directory, ["b c.txt", str(listed)])
    assert request.names == {("news", "b c.txt"), ("web", "a@0")}
    assert request.taken_before == {("web", "d@7")}
    assert request.first_sequences.tolist() == [10, 20]
    assert request.text_hashes.tolist() == [1, 2, 3]
    assert request.corpora == {"news": 1, "web": 1}


def test_an_argument_that_is_not_utf8_is_no_id(directory: Path) -> None:
    with pytest.raises(ConfigError, match=r"1 of 1 ids are not in .* for example 'a\\udcff@0'"):
        find_documents(directory, ["a\udcff@0"])


def test_an_id_is_not_read_as_a_file(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("b c.txt").write_text("d@7")
    assert find_documents(directory, ["b c.txt"]).names == {("news", "b c.txt")}


def test_the_fingerprint_depends_on_parent_and_documents_alone(directory: Path) -> None:
    one, other = ["news\ta@0", "b c.txt"], ["b c.txt", "d@7", "news\ta@0", "b c.txt"]
    first, second = (find_documents(directory, names) for names in (one, other))
    assert first.fingerprint("parent") == second.fingerprint("parent")
    assert first.fingerprint("parent") != first.fingerprint("another")
    assert first.fingerprint("parent") != find_documents(directory, one[:1]).fingerprint("parent")


def test_mistakes(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"2 of 3 ids are not in .*, for example 'x'"):
        find_documents(directory, ["x", "y", "d@7"])
    with pytest.raises(ConfigError, match="for example 'd', the origin of d@7; give ids from"):
        find_documents(directory, ["d"])
    with pytest.raises(ConfigError, match="is in the corpora news and web; put the name of one"):
        find_documents(directory, ["a@0"])
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigError, match="names no document"):
        find_documents(directory, [str(tmp_path / "empty")])
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read as a list of ids"):
        find_documents(directory, [str(tmp_path / "binary")])

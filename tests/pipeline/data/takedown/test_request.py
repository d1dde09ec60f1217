"""Ids are found in the shards, or refused with one line."""

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
    rows = [
        {"id": id, "corpus": corpus, "origin": id.partition("@")[0], "first_sequence": 10 * number,
         "text_hash": number}
        for number, (corpus, id) in enumerate(names)
    ]  # fmt: skip
    table = pa.Table.from_pylist(rows, DOCUMENTS_SCHEMA)
    table = table.append_column(TAKEN_DOWN, pa.array([False, False, False, True]))
    pq.write_table(table, tmp_path / DOCUMENTS, row_group_size=2)
    return tmp_path


def test_ids_and_files_of_ids(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An id is not read as a file."""
    listed = directory / "list"
    listed.write_text("web\ta@0\r\n\nd@7\n")
    request = find_documents(directory, ["b c.txt", str(listed)])
    assert request.names == {("news", "b c.txt"), ("web", "a@0")}
    assert request.taken_before == {("web", "d@7")}
    assert request.first_sequences.tolist() == [10, 20]
    assert request.text_hashes.tolist() == [1, 2, 3]
    assert request.corpora == {"news": 1, "web": 1}
    monkeypatch.chdir(directory)
    Path("b c.txt").write_text("d@7")
    assert find_documents(directory, ["b c.txt"]).names == {("news", "b c.txt")}


def test_the_fingerprint_depends_on_parent_and_documents_alone(directory: Path) -> None:
    one, other = ["news\ta@0", "b c.txt"], ["b c.txt", "d@7", "news\ta@0", "b c.txt"]
    first, second = (find_documents(directory, names) for names in (one, other))
    assert first.fingerprint("parent") == second.fingerprint("parent")
    assert first.fingerprint("parent") != first.fingerprint("another")
    assert first.fingerprint("parent") != find_documents(directory, one[:1]).fingerprint("parent")


def test_mistakes(directory: Path) -> None:
    empty, binary = directory / "empty", directory / "binary"
    empty.write_text("\n")
    binary.write_bytes(b"\xff\xfe")
    for names, said in (
        (["x", "y", "d@7"], "2 of 3 .* 'x'"), (["a\udcff@0"], r"1 of 1 .* 'a\\udcff@0'"),
        (["d"], "'d', the origin of d@7"), (["a@0"], "corpora news and web"),
        ([str(empty)], "names no document"), ([str(binary)], f"{binary} cannot be read"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=said):
            find_documents(directory, names)

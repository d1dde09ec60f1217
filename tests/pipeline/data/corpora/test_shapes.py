"""Directories of several formats, and plain text that may be split in the wrong places."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from pipeline.data.corpora.shapes import plain_text_notes
from pipeline.data.corpora.sources import corpus_sources

LINE = '{"text": "One. Two."}\n'


def read_names(
    capsys: pytest.CaptureFixture[str], *inputs: Path, plain_text: str = ""
) -> tuple[list[str], str]:
    _, sources = corpus_sources("mine", [str(path) for path in inputs], plain_text=plain_text)
    return [source.name for source in sources], capsys.readouterr().out


def test_what_describes_records_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text(LINE)
    beside = ["LICENSE", "README.md", "SHA256SUMS", "a.jsonl.sha256", "md5sum.txt"]
    for name in beside:
        (tmp_path / name).write_text("Some words.\n\n" * 100)
    found, said = read_names(capsys, tmp_path)
    assert found == ["a.jsonl"]
    assert f"{tmp_path} holds 1 JSON lines; 5 other file(s) are left out (LICENSE, " in said
    assert "--plain-text reads them as documents" in said
    found, said = read_names(capsys, tmp_path, plain_text="blank_lines")
    assert found == sorted(["a.jsonl", *beside])
    assert "holds 1 JSON lines, 5 plain text; all are read; to choose, name the files" in (
        said.replace("5 plain text, 1 JSON lines", "1 JSON lines, 5 plain text")
    )
    # Files that were named are read, and so are descriptions among nothing but text.
    assert read_names(capsys, tmp_path / "README.md", tmp_path / "a.jsonl")[0] == [
        "README.md",
        "a.jsonl",
    ]
    (tmp_path / "a.jsonl").unlink()
    found, said = read_names(capsys, tmp_path)
    assert (found, said) == (beside, "")


def test_plain_text_that_is_less_than_the_records_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text(LINE * 3)
    for number in range(7):
        (tmp_path / f"notes{number}").write_text("One.\n")
    found, said = read_names(capsys, tmp_path)
    assert found == ["a.jsonl"]
    assert (
        "7 other file(s) are left out (notes0, notes1, notes2, notes3, notes4 and 2 more)" in said
    )
    (tmp_path / "book").write_text("One. Two.\n" * 10)
    found, said = read_names(capsys, tmp_path)
    assert len(found) == 9
    assert f"{tmp_path} holds 1 JSON lines, 8 plain text; all are read" in said


def test_several_formats_of_records_are_all_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text(LINE)
    (tmp_path / "wiki_00").write_text('<doc id="1">\nA\n\nOne.\n</doc>\n')
    found, said = read_names(capsys, tmp_path)
    assert found == ["a.jsonl", "wiki_00"]
    assert "holds 1 JSON lines, 1 wikiextractor mark-up; all are read; to choose, name" in said


def notes(folder: Path, corpus: str = "mine", plain_text: str = "") -> list[str]:
    return list(plain_text_notes(corpus_sources(corpus, [str(folder)], plain_text=plain_text)[1]))


def test_many_documents_per_file_are_reported(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.txt").write_text("\n\n".join(["Words."] * 11))
    (said,) = notes(tmp_path)
    assert (
        "mine: plain text is read as documents between blank lines (--plain-text blank_lines)"
        in said
    )
    assert "at least about 220 documents in 20 file(s)" in said
    assert "if a file is one document, give --plain-text file" in said
    assert not notes(tmp_path, plain_text="file")
    (said,) = notes(tmp_path, plain_text="lines")
    assert "one document per line (--plain-text lines)" in said
    for number in range(20):
        (tmp_path / f"{number}.txt").write_text("\n\n".join(["Words."] * 10))
    assert not notes(tmp_path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_long_document_is_reported(tmp_path: Path, pack: object) -> None:
    (tmp_path / "a").write_bytes(pack(b"Some words here.\n" * 250_000))  # type: ignore[operator]
    for corpus, split in (("mine", "blank_lines"), ("wikipedia", "file"), ("bookcorpus", "book")):
        (said,) = notes(tmp_path, corpus)
        assert f"(--plain-text {split}), and 1 document(s) have over 4 MB" in said
        assert said.endswith("--plain-text lines")
    (tmp_path / "a").write_bytes(pack(b"Some words here.\n" * 240_000))  # type: ignore[operator]
    assert not notes(tmp_path)

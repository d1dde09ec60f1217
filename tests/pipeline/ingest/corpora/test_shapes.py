"""Directories of several formats, and plain text that may be split in the wrong places."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.ingest.corpora.shapes import plain_text_notes
from pipeline.ingest.corpora.sources import SAMPLE_FILES, corpus_sources, print_input
from tests.pipeline.ingest.files import LINE, put


def read_names(
    capsys: pytest.CaptureFixture[str], *inputs: Path, plain_text: str = ""
) -> tuple[list[str], str]:
    _, sources = corpus_sources("mine", [str(path) for path in inputs], plain_text=plain_text)
    return [source.name for source in sources], capsys.readouterr().out


def test_descriptions_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unless it is named, whatever is next to it."""
    records = put(tmp_path / "a.jsonl")
    beside = ["LICENSE", "README.md", "SHA256SUMS", "a.jsonl.sha256", "md5sum.txt"]
    for name in beside:
        put(tmp_path / name, "Some words.\n\n" * 100)
    found, said = read_names(capsys, tmp_path)
    assert found == ["a.jsonl"]
    assert f"{tmp_path}: 5 file(s) and folder(s) are skipped by their names (LICENSE, " in said
    assert read_names(capsys, tmp_path, plain_text="blank_lines")[0] == ["a.jsonl"]
    assert read_names(capsys, tmp_path / "README.md", records)[0] == ["README.md", "a.jsonl"]
    records.unlink()
    put(tmp_path / "a.txt", "Words.")
    assert read_names(capsys, tmp_path)[0] == ["a.txt"]


def test_each_file_is_read_as_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where formats mix, the summary counts them."""
    put(tmp_path / "a.jsonl", LINE * 3)
    put(tmp_path / "notes", "One.\n")
    put(tmp_path / "w", '<doc id="1">\nA\n\nOne.\n</doc>\n')
    _, sources = corpus_sources("mine", [str(tmp_path)])
    print_input(sources, "input")
    assert [source.name for source in sources] == ["a.jsonl", "notes", "w"]
    said = capsys.readouterr().out
    assert "1 JSON lines, 1 plain text (blank lines), 1 wikiextractor mark-up; 0.0 MB" in said


def notes(folder: Path, corpus: str = "mine", plain_text: str = "") -> list[str]:
    return list(plain_text_notes(corpus_sources(corpus, [str(folder)], plain_text=plain_text)[1]))


def test_many_documents_per_file_and_tables_are_reported(tmp_path: Path) -> None:
    for number in range(20):
        put(tmp_path / f"{number}.txt", "\n\n".join(["Words."] * 11))
    (said,) = notes(tmp_path)
    assert "mine: plain text is read" in said and "(--plain-text blank_lines)" in said
    assert "220 documents in 20 file(s)" in said and "give --plain-text file" in said
    assert not notes(tmp_path, plain_text="file")
    (said,) = notes(tmp_path, plain_text="lines")
    assert "one document per line (--plain-text lines)" in said
    for number in range(20):
        put(tmp_path / f"{number}.txt", "\n\n".join(["Words."] * 10))
    assert not notes(tmp_path)
    put(tmp_path / "tables/a.txt", "Some words.")
    put(tmp_path / "tables/b.csv", "number,text\n1,Some words.\n")
    assert not notes(tmp_path / "tables")
    (said,) = notes(tmp_path / "tables", plain_text="book")
    assert "--plain-text reads b.csv as one book per file; to read records" in said


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_documents_are_estimated_by_bytes(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    """One file with nearly all of them, next to many that have one each."""
    for number in range(60):
        put(tmp_path / f"{number}.txt", pack(b"Words are here, some more of them.\n"))
    many = "\n\n".join(f"Words {number} are here, and more of them." for number in range(2_000))
    put(tmp_path / "many.txt", pack(many.encode()))
    (said,) = notes(tmp_path)
    [documents] = re.findall(r"about ([\d,]+) documents in 61 file", said)
    assert 1_000 < int(documents.replace(",", "")) < 4_000, said


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_long_document_is_reported(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    put(tmp_path / "a", pack(b"Some words here.\n" * 250_000))
    for corpus, split in (("mine", "blank_lines"), ("wikipedia", "file"), ("bookcorpus", "book")):
        (said,) = notes(tmp_path, corpus)
        assert f"(--plain-text {split}), and 1 document(s) have over 4 MB" in said
        assert said.endswith("--plain-text lines")
    put(tmp_path / "a", pack(b"Some words here.\n" * 240_000))
    assert not notes(tmp_path)


# --- lines that are documents

SENTENCES = (
    "The council met on Tuesday to vote on the new bridge.",
    "It had been planned for more than ten years, and it would cost twice what was first said.",
    "Residents of the old town were against it!",
    "A spokesman declined to comment (he was abroad).",
    "Nobody could say when the work would start, or who would pay for it in the end.",
)


def articles(count: int) -> list[str]:
    """Documents of 4 to 12 sentences, a line each; one in twenty is short."""
    sizes = (1 if number % 20 == 19 else 4 + number * 7 % 9 for number in range(count))
    return [
        " ".join(SENTENCES[(number + i) % 5] for i in range(size))
        for number, size in enumerate(sizes)
    ]


def book(name: str) -> str:
    return (SAMPLE_FILES / "books" / name).read_text()


CHINESE = "市议会开会，对新桥的方案进行了表决，并公布了费用。居民们表示反对！何时动工，仍不清楚。"
BY_LINE = {
    "articles": "\n".join(articles(300)),
    "articles between Windows' line ends": "\r\n".join(articles(300)),
    "articles in few parts": "\n\n".join("\n".join(articles(150)) for _ in range(2)),
    "pages, of which many end without a mark": "\n".join(
        text + " Read more" * (number % 3 == 0) for number, text in enumerate(articles(300))
    ),
    "articles in Chinese": "\n".join([CHINESE * 3] * 200),
    "articles that end in a quotation": "\n".join(f"{text} “No!”" for text in articles(200)),
}
NOT_BY_LINE = {
    "articles between blank lines": "\n\n".join(articles(300)),
    "few articles": "\n".join(articles(60)),
    "articles of paragraphs": "\n\n".join("\n".join(articles(12)) for _ in range(40)),
    "a sentence in each line": "\n".join(SENTENCES * 100),
    "verse": "\n".join(["Tyger Tyger, burning bright,", "In the forests of the night;"] * 300),
    "a list": "\n".join(f"{number}. a bridge over the river" for number in range(500)),
    "a log": "\n".join(
        f"2026-01-01 10:00:{n % 60:02} INFO request {n} " + "path=/a/b/c status=200 " * 15
        for n in range(500)
    ),
    "a table": "\n".join("\t".join([*SENTENCES, str(number)] * 2) for number in range(500)),
}  # fmt: skip
for name in ("Burnett_Princess_1905.txt", "Chesterton_Thursday_1908.txt", "Doyle_Hound_1902.txt"):
    NOT_BY_LINE |= {
        name: book(name),
        f"{name}, wrapped without blank lines": re.sub(r"\n\s*\n", "\n", book(name)),
        f"{name}, a paragraph in each line": "\n".join(
            " ".join(text.split()) for text in re.split(r"\n\s*\n", book(name))
        ),
    }


@pytest.mark.parametrize("corpus", ["mine", "wikipedia"])
def test_lines_that_look_like_documents(tmp_path: Path, corpus: str) -> None:
    for name, text in BY_LINE.items():
        put(tmp_path / "a", text)
        (said,) = notes(tmp_path, corpus)
        assert "but its lines look like documents (" in said, name
        assert said.endswith("; if they are, give --plain-text lines")
        put(tmp_path / "b", book("Doyle_Hound_1902.txt"))  # most of the text is no such
        assert not any("look like" in note for note in notes(tmp_path, corpus)), name
        (tmp_path / "b").unlink()
    assert not any("look like" in note for note in notes(tmp_path, corpus, "lines"))


@pytest.mark.parametrize("plain_text", ["blank_lines", "file", "book"])
def test_lines_that_do_not(tmp_path: Path, plain_text: str) -> None:
    for name, text in NOT_BY_LINE.items():
        if plain_text != "blank_lines" and name.startswith("articles"):
            continue  # such a file is not one document
        put(tmp_path / "a", text)
        said = notes(tmp_path, plain_text=plain_text)
        assert not any("look like" in note for note in said), name

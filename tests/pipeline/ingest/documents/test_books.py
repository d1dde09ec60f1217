"""Books: headers old and new, notes; cuts are counted."""

import re
from pathlib import Path
from typing import Any

import pytest

from pipeline.ingest.documents import time_limit
from pipeline.ingest.documents.books import CREDITS, LICENCE, NOTES, PAGES, trimmed
from pipeline.ingest.documents.records import BadRecord, Dropped, Record
from tests.pipeline.ingest.files import read_all, sniffed

BOOK = "CHAPTER I\n\nIt was a dark night.\n\nThe End"

NEW = """\ufeffThe Project Gutenberg eBook of A Night, by A. Writer

This eBook is for the use of anyone anywhere at no cost.

Title: A Night

*** START OF THE PROJECT GUTENBERG EBOOK A NIGHT,
OR TWO ***

Produced by Someone and the Online Distributed
Proofreading Team

{book}

*** END OF THE PROJECT GUTENBERG EBOOK A NIGHT ***

Updated editions will replace the previous one.
*** START: FULL LICENSE ***
"""
MIDDLE = """The Project Gutenberg EBook of A Night, by A. Writer

***START OF THE PROJECT GUTENBERG EBOOK A NIGHT***

E-text prepared by Someone

{book}

End of the Project Gutenberg EBook of A Night, by A. Writer

***END OF THE PROJECT GUTENBERG EBOOK A NIGHT***
"""
OLD = """**The Project Gutenberg Etext of A Night, by A. Writer**

Please do not remove this.

***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN ETEXTS**START***
Why is this "Small Print!" statement here?  You know: lawyers.
*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*

This etext was prepared by Someone, from the 1894 edition.

{book}

End of The Project Gutenberg Etext of A Night, by A. Writer
"""
OLDEST = """Project Gutenberg's A Night

{book}
{end}
***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN ETEXTS**START***
*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*
"""


EDITIONS = {"new": NEW, "middle": MIDDLE, "old": OLD}
END = "\nEnd of Project Gutenberg's A Night\n"
"""Before the small print at the end of some of the oldest editions."""


@pytest.mark.parametrize("name", EDITIONS)
def test_headers_and_footers(name: str) -> None:
    whole = EDITIONS[name].format(book=BOOK)
    for ending in ("\n", "\r\n"):
        text, cut = trimmed(whole.removeprefix("\ufeff").replace("\n", ending))
        assert text == BOOK
        counted = dict(cut)
        assert set(counted) == {LICENCE, CREDITS}
        blank = len(re.findall(r"\s", whole)) - len(re.findall(r"\s", BOOK))
        assert 0 <= len(whole) - len(BOOK) - sum(counted.values()) <= blank


def test_small_print_and_text_that_look_like_headers() -> None:
    """What comes after the book is cut; the rest stays."""
    for end in ("", END):
        text, _ = trimmed(OLDEST.format(book=BOOK, end=end))
        assert text == f"Project Gutenberg's A Night\n\n{BOOK}"
    for text in (
        "A book about books.\n\nEnd of Project Gutenberg's files, it said.\n\nMore.",
        "Produced by nobody.\n\nIt was a dark night.",
        "She read:\n\n*END*\n\nand wept.",
    ):
        assert trimmed(text) == (text, ())


def read_whole(path: Path, content: str | bytes | None = None) -> list[Any]:
    """What is read of a file of books."""
    return read_all(sniffed(path, content), piece_bytes=1 << 30)


def books_of(path: Path, content: str | bytes) -> list[tuple[int, str, set[str]]]:
    """Position, text and what was cut."""
    found = read_whole(path, content)
    assert all(isinstance(record, Record) and record.origin == path.name for record in found)
    return [
        (int(one.id.rpartition("@")[2]), one.text, {name for name, _ in one.cut}) for one in found
    ]


def long_book(number: int) -> str:
    night = f"It was night {number}, and the ford was dark.\n\n"
    return f"CHAPTER {number}\n\n{night * 30}End"


@pytest.mark.parametrize("editions", [[NEW] * 3, [MIDDLE] * 3, [OLD] * 3, [OLD, NEW, MIDDLE, NEW]])
def test_several_books_in_a_file(tmp_path: Path, editions: list[str]) -> None:
    whole = "\n\n".join(text.format(book=long_book(n)) for n, text in enumerate(editions))
    for ending in ("\n", "\r\n"):
        content = whole.removeprefix("\ufeff").replace("\n", ending).encode()
        found = books_of(tmp_path / "all.txt", content)
        assert [text for _, text, _ in found] == [long_book(n) for n, _ in enumerate(editions)]
        assert found[0][0] == 0
        for position, _, cut_from_it in found[1:]:
            start = content[position:].lstrip()
            assert start.startswith((b"***START OF", b"*** START OF", b"*END*THE"))
            assert LICENCE in cut_from_it


def test_several_books_with_other_marks_between_them(tmp_path: Path) -> None:
    """Small print, headers, or nothing but start marks; two marks of one header are one book."""
    path = tmp_path / "all.txt"
    whole = "\n".join(OLDEST.format(book=long_book(n), end=END) for n in range(3))
    expected = [f"Project Gutenberg's A Night\n\n{long_book(n)}" for n in range(3)]
    assert [text for _, text, _ in books_of(path, whole)] == expected
    for edition in (
        NEW.partition("*** END")[0],
        "*** START OF THE PROJECT GUTENBERG EBOOK ***\n\n{book}\n\n" + "More.\n" * 4000,
    ):
        content = "\n\n".join(edition.format(book=long_book(n)) for n in range(3))
        texts = [text for _, text, _ in books_of(path, content)]
        assert len(texts) == 3
        for number, text in enumerate(texts):
            assert text.startswith(long_book(number)) and "gutenberg" not in text.lower()
    mark = "*** START OF THE PROJECT GUTENBERG EBOOK A NIGHT ***"
    twice = NEW.format(book=f"Project Gutenberg's A Night\n\n{mark}\n\n{long_book(1)}")
    assert [text for _, text, _ in books_of(path, twice)] == [long_book(1)]
    more = OLD.format(book=long_book(1)) + "\n" + OLD.partition("***START")[2] * 2
    assert books_of(path, more)[0][1] == long_book(1)


def test_books_have_their_own_encodings(tmp_path: Path) -> None:
    """The header before a book declares it; a header that is wrong about UTF-8 is overruled."""
    declared = NEW.removeprefix("\ufeff").replace("Title:", "Character set encoding: {}\n\nTitle:")
    text = long_book(1) + "\n\nUn “été” à Nîmes."
    content = b"".join(
        declared.replace("{}", name).format(book=text).encode(encoding)
        for name, encoding in (("UTF-8", "utf-8"), ("CP-1252", "cp1252"), ("CP1252", "utf-8"))
    )
    damaged = content.replace(b"\n\n*** END", b" \xe9\n\n*** END")
    [_, latin, utf_8] = read_whole(tmp_path / "all.txt", damaged)
    assert isinstance(latin, Record) and latin.text == text + " é" and not latin.noted
    assert isinstance(utf_8, Record) and utf_8.text == text + " \ufffd"
    assert utf_8.noted == "in another encoding than stated"
    header = (
        "The Project Gutenberg EBook\n\nCharacter set encoding: {}\n\n"
        "*** START OF THE PROJECT GUTENBERG EBOOK ***\n\n"
    )
    for name, encoding in (
        ("ISO-8859-1", "latin-1"), ("Windows-1252", "cp1252"), ("ISO-8859-1", "utf-8"),
        ("MacRoman", "latin-1"),
    ):  # fmt: skip
        content = (header.format(name) + "Un été à Nîmes.\n" * 9).encode(encoding)
        [record] = read_whole(tmp_path / "n.txt", content)
        if name == "MacRoman":
            assert record == BadRecord("n.txt:7", "invalid UTF-8")
        else:
            assert record.text == ("Un été à Nîmes.\n" * 9).strip()


def test_notes_and_page_marks() -> None:
    text, cut = trimmed(
        "One.\n\n[Illustration: A [small] house,\nwith smoke]\n\n[Transcriber's Note: sic.]\n\n"
        "Two[Pg 12] three [1] [Footnote 1: of four]."
    )
    assert text == "One.\n\n\n\n\n\nTwo three [1] [Footnote 1: of four]."
    assert dict(cut) == {NOTES: 43 + 26, PAGES: 7}


def test_books_by_content_and_by_corpus(tmp_path: Path) -> None:
    path = tmp_path / "n.txt"
    assert sniffed(path, NEW.format(book=BOOK), plain_text="blank_lines").format == "book"
    assert sniffed(path, plain_text="file", forced_text=True).format == "text"
    [record] = read_all(sniffed(path), piece_bytes=10)
    assert isinstance(record, Record)
    assert (record.id, record.origin, record.text) == ("n.txt@0", "n.txt", BOOK)
    assert sniffed(path, BOOK).format == "text"
    assert sniffed(path, plain_text="book").format == "book"


def test_real_editions_of_one_book(real_data: Path) -> None:
    """The etexts of News from Nowhere of 2001 and 2007 have nearly the same words."""
    words = []
    for name in ("3261.txt", "nwsnw10.txt"):
        [record] = read_whole(real_data / "formats" / "gutenberg" / name)
        assert isinstance(record, Record)
        assert record.text.startswith("NEWS FROM NOWHERE")
        assert record.text.endswith("Cirencester and Burford he must have meant.")
        assert "gutenberg" not in record.text.lower()
        words.append(len(re.findall(r"\w+", record.text)))
    assert abs(words[0] - words[1]) < 200


def test_hostile_books_take_little_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, cuts = trimmed(NEW.format(book="Produced by Someone\n\n" * 50_000 + BOOK))
    assert text == BOOK and dict(cuts)[CREDITS] > 50_000
    monkeypatch.setattr(time_limit, "SECONDS", 0.05)
    slow = NEW.format(book="[Illustration: " + "[a] " * 1000 + "\n" + "[Pg 1]\n" * 300_000)
    [found] = read_whole(tmp_path / "book.txt", slow)
    assert found == Dropped("book.txt@0", "over 10 s of CPU")

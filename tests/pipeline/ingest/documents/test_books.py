"""Books: headers old and new, notes, split words; cuts are counted."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from pipeline.ingest.documents import books, time_limit
from pipeline.ingest.documents.books import CREDITS, HYPHENS, LICENCE, NOTES, PAGES, trimmed
from pipeline.ingest.documents.read import cut, read
from pipeline.ingest.documents.records import BadRecord, Dropped, Record
from pipeline.ingest.documents.sniff import sniff

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


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("edition", [NEW, MIDDLE, OLD], ids=["new", "middle", "old"])
def test_headers_and_footers(edition: str, ending: str) -> None:
    whole = edition.format(book=BOOK)
    text, cut = trimmed(whole.removeprefix("\ufeff").replace("\n", ending))
    assert text == BOOK
    counted = dict(cut)
    assert set(counted) == {LICENCE, CREDITS}
    blank = len(re.findall(r"\s", whole)) - len(re.findall(r"\s", BOOK))
    assert 0 <= len(whole) - len(BOOK) - sum(counted.values()) <= blank


def books_of(path: Path) -> list[tuple[int, str, set[str]]]:
    """Position, text and what was cut."""
    found = [*read(cut(sniff(path, "bookcorpus", path.name), 1 << 30)[0])]
    assert all(isinstance(record, Record) and record.origin == path.name for record in found)
    return [
        (
            int(record.id.removeprefix(f"{path.name}@")),
            record.text,
            {name for name, _ in record.cut},
        )
        for record in found
        if isinstance(record, Record)
    ]


def long_book(number: int) -> str:
    return (
        f"CHAPTER {number}\n\n" + f"It was night {number}, and the ford was dark.\n\n" * 30 + "End"
    )


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("editions", [[NEW] * 3, [MIDDLE] * 3, [OLD] * 3, [OLD, NEW, MIDDLE, NEW]])
def test_several_books_in_a_file(tmp_path: Path, editions: list[str], ending: str) -> None:
    whole = "\n\n".join(
        edition.format(book=long_book(number)) for number, edition in enumerate(editions)
    )
    content = whole.removeprefix("\ufeff").replace("\n", ending).encode()
    (tmp_path / "all.txt").write_bytes(content)
    found = books_of(tmp_path / "all.txt")
    assert [text for _, text, _ in found] == [long_book(n) for n, _ in enumerate(editions)]
    assert found[0][0] == 0
    for position, _, cut_from_it in found[1:]:
        assert (
            content[position:].lstrip().startswith((b"***START OF", b"*** START OF", b"*END*THE"))
        )
        assert LICENCE in cut_from_it


def test_several_books_of_the_oldest_editions(tmp_path: Path) -> None:
    end = "\nEnd of Project Gutenberg's A Night\n"
    whole = "\n".join(OLDEST.format(book=long_book(n), end=end) for n in range(3))
    (tmp_path / "all.txt").write_text(whole)
    expected = [f"Project Gutenberg's A Night\n\n{long_book(n)}" for n in range(3)]
    assert [text for _, text, _ in books_of(tmp_path / "all.txt")] == expected


def test_several_books_without_end_marks(tmp_path: Path) -> None:
    """Their headers, or nothing but start marks, are between them."""
    path = tmp_path / "all.txt"
    for edition in (
        NEW.partition("*** END")[0],
        "*** START OF THE PROJECT GUTENBERG EBOOK ***\n\n{book}\n\n" + "More.\n" * 4000,
    ):
        path.write_text("\n\n".join(edition.format(book=long_book(n)) for n in range(3)))
        texts = [text for _, text, _ in books_of(path)]
        assert len(texts) == 3
        for number, text in enumerate(texts):
            assert text.startswith(long_book(number)) and "gutenberg" not in text.lower()


def test_two_start_marks_of_one_header_are_one_book(tmp_path: Path) -> None:
    path = tmp_path / "night.txt"
    mark = "*** START OF THE PROJECT GUTENBERG EBOOK A NIGHT ***"
    path.write_text(NEW.format(book=f"Project Gutenberg's A Night\n\n{mark}\n\n{long_book(1)}"))
    assert [text for _, text, _ in books_of(path)] == [long_book(1)]
    path.write_text(OLD.format(book=long_book(1)) + "\n" + OLD.partition("***START")[2] * 2)
    assert books_of(path)[0][1] == long_book(1)


def test_books_in_a_file_have_their_own_encodings(tmp_path: Path) -> None:
    """The header before a book declares it; a header that is wrong about UTF-8 is overruled."""
    declared = NEW.removeprefix("\ufeff").replace("Title:", "Character set encoding: {}\n\nTitle:")
    text = long_book(1) + "\n\nUn “été” à Nîmes."
    content = b"".join(
        declared.replace("{}", name).format(book=text).encode(encoding)
        for name, encoding in (("UTF-8", "utf-8"), ("CP-1252", "cp1252"), ("CP1252", "utf-8"))
    )
    (tmp_path / "all.txt").write_bytes(content.replace(b"\n\n*** END", b" \xe9\n\n*** END"))
    [_, latin, utf_8] = read(cut(sniff(tmp_path / "all.txt", "own", "all.txt"), 1 << 30)[0])
    assert isinstance(latin, Record) and latin.text == text + " é" and not latin.noted
    assert isinstance(utf_8, Record) and utf_8.text == text + " \ufffd"
    assert utf_8.noted == "in another encoding than stated"


@pytest.mark.parametrize("end", ["", "\nEnd of Project Gutenberg's A Night\n"])
def test_small_print_after_the_book_is_not_a_header(end: str) -> None:
    assert trimmed(OLDEST.format(book=BOOK, end=end))[0] == f"Project Gutenberg's A Night\n\n{BOOK}"


def test_text_that_looks_like_a_header_stays() -> None:
    for text in (
        "A book about books.\n\nEnd of Project Gutenberg's files, it said.\n\nMore.",
        "Produced by nobody.\n\nIt was a dark night.",
        "She read:\n\n*END*\n\nand wept.",
    ):
        assert trimmed(text) == (text, ())


def test_notes_and_page_marks() -> None:
    text, cut = trimmed(
        "One.\n\n[Illustration: A [small] house,\nwith smoke]\n\n[Transcriber's Note: sic.]\n\n"
        "Two[Pg 12] three [1] [Footnote 1: of four]."
    )
    assert text == "One.\n\n\n\n\n\nTwo three [1] [Footnote 1: of four]."
    assert dict(cut) == {NOTES: 43 + 26, PAGES: 7}


TEARS = (
    "He con-\ntemplated the Bath-\nroom, an ob-\nserver with-\nout pro-\nfit; "
    "dif-\n\nferently, too. "
)
SEEN = "Contemplated observer without profit differently bath room."


def test_split_words_are_joined_if_the_book_has_them_joined() -> None:
    text, cut = trimmed(TEARS + SEEN)
    assert text == (
        "He contemplated\n the Bath-\nroom, an observer\n without\n profit;\n differently,\n too. "
        f"{SEEN}"
    )
    assert dict(cut) == {HYPHENS: 5}


def test_fragments_are_joined_only_in_a_book_with_split_words() -> None:
    torn = "a quag-\nmire and a moun-\ntain"
    assert "a quagmire\n and a mountain" in trimmed(TEARS + SEEN + torn)[0]
    assert trimmed(torn) == (torn, ())
    assert "moun-\ntain" in trimmed(TEARS + SEEN + torn + " moun")[0]


def test_compounds_keep_their_hyphen() -> None:
    for compound in (
        "the well-\nknown man is well-known, wellknown not",
        "mother-in-\nlaw; inlaw", "a matter-\nof-fact way; matterof",
        "the Anglo-\nSaxons; anglosaxons",
        "he said--\nand went; saidand", "pages 12-\n14",
    ):  # fmt: skip
        assert trimmed(compound) == (compound, ())


def test_soft_hyphens_at_line_ends() -> None:
    assert trimmed("con\u00ad\ntemplate it") == ("contemplate\n it", ((HYPHENS, 2),))


def test_books_by_content_and_by_corpus(tmp_path: Path) -> None:
    path = tmp_path / "night.txt"
    path.write_text(NEW.format(book=BOOK))
    assert sniff(path, "own", "night.txt", plain_text="blank_lines").format == "book"
    assert sniff(path, "own", "night.txt", plain_text="file", forced_text=True).format == "text"
    [record] = [r for piece in cut(sniff(path, "own", "n.txt"), 10) for r in read(piece)]
    assert isinstance(record, Record)
    assert (record.id, record.origin, record.text) == ("n.txt@0", "n.txt", BOOK)
    path.write_text(BOOK)
    assert sniff(path, "own", "night.txt").format == "text"
    assert sniff(path, "own", "night.txt", plain_text="book").format == "book"


def test_the_declared_encoding_is_used_when_it_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "night.txt"
    header = (
        "The Project Gutenberg EBook\n\nCharacter set encoding: {}\n\n"
        "*** START OF THE PROJECT GUTENBERG EBOOK ***\n\n"
    )
    texts = {}
    for declared, encoding in (
        ("ISO-8859-1", "latin-1"), ("Windows-1252", "cp1252"), ("ISO-8859-1", "utf-8"),
        ("MacRoman", "latin-1"),
    ):  # fmt: skip
        path.write_bytes((header.format(declared) + "Un été à Nîmes.\n" * 9).encode(encoding))
        [record] = read(cut(sniff(path, "own", "n.txt"), 10)[0])
        texts[declared, encoding] = record.text if isinstance(record, Record) else record
    bad = texts.pop(("MacRoman", "latin-1"))
    assert bad == BadRecord("n.txt:7", "invalid UTF-8")
    assert set(texts.values()) == {("Un été à Nîmes.\n" * 9).strip()}


def test_real_editions_of_one_book(real_data: Path) -> None:
    """The etexts of News from Nowhere of 2001 and 2007 have nearly the same words."""
    folder = real_data / "formats" / "gutenberg"
    words = {}
    for name in ("3261.txt", "nwsnw10.txt"):
        [record] = read(cut(sniff(folder / name, "bookcorpus", name), 1 << 30)[0])
        assert isinstance(record, Record)
        assert record.text.startswith("NEWS FROM NOWHERE")
        assert record.text.endswith("Cirencester and Burford he must have meant.")
        assert "gutenberg" not in record.text.lower()
        words[name] = re.findall(r"\w+", record.text)
    assert abs(len(words["3261.txt"]) - len(words["nwsnw10.txt"])) < 200


def test_credits_are_cut_in_linear_time() -> None:
    text, cuts = trimmed(NEW.format(book="Produced by Someone\n\n" * 50_000 + BOOK))
    assert text == BOOK and dict(cuts)[CREDITS] > 50_000


def test_a_book_that_takes_too_long_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limit, "SECONDS", 0.05)
    path = tmp_path / "book.txt"
    path.write_text(NEW.format(book="con-\ntemplate and a-\nnother\n" * 40_000))
    [found] = read(cut(sniff(path, "bookcorpus", "book.txt"), 1 << 20)[0])
    assert found == Dropped("book.txt@0", "over 10 s of CPU")


def test_split_words_are_those_that_the_pattern_finds_anywhere() -> None:
    rng = random.Random(17)
    for _ in range(20_000):
        text = "".join(rng.choices("aÀ²½1_-- \t\n\n.“\u0301", k=rng.randint(3, 30)))
        expected = [found.span() for found in books._TORN.finditer(text)]
        assert [found.span() for found in books._torn(text)] == expected, repr(text)

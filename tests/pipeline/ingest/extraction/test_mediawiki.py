"""MediaWiki dumps: every page is an article or is dropped with a reason."""

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.ingest.documents import time_limit
from pipeline.ingest.documents.records import Extract
from pipeline.ingest.extraction import mediawiki
from pipeline.ingest.extraction.formats import format_of
from tests.pipeline.ingest.dump import PROSE, dump, page, small_dump
from tests.pipeline.ingest.files import sniffed


def articles(folder: Path, content: bytes) -> list[Extract]:
    source = sniffed(folder / "dump", content)
    assert source.format == "mediawiki"
    return [*format_of(source).begin(source)]


def streams(content: bytes) -> bytes:
    """In many bzip2 streams, like Wikipedia's multistream dumps."""
    return b"".join(bz2.compress(content[at : at + 1000]) for at in range(0, len(content), 1000))


@pytest.mark.parametrize("pack", [bytes, bz2.compress, gzip.compress, streams])
def test_every_page_is_yielded(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    found = articles(tmp_path, pack(small_dump()))
    assert [(article.title, article.dropped) for article in found] == [
        ("Arve", ""), ("Arve river", "redirect"), ("Arva", "disambiguation"),
        ("Talk:Arve", "not an article"), ("Table", "no prose"),
    ]  # fmt: skip
    assert found[0].text == f"Arve\n\n{PROSE}"
    assert not any(article.text for article in found[1:])
    assert found[0].id == "1" and found[0].revised == "2016-04-22T10:19:01Z"
    assert {(article.language, article.domain) for article in found} == {("en", "en.wikipedia.org")}
    assert found[1].url == "https://en.wikipedia.org/wiki/Arve_river"
    positions = [article.position for article in found]
    assert positions == sorted(positions) and positions[0] > 0
    assert positions[-1] <= len(small_dump())


def test_a_damaged_dump_is_an_error(tmp_path: Path) -> None:
    whole = small_dump()
    packed = bytearray(bz2.compress(whole * 50))
    packed[len(packed) // 2 :] = bytes(len(packed) - len(packed) // 2)
    for content in (
        whole[:-200], bz2.compress(whole)[:-20], whole.replace(b"</title>", b"<", 1), bytes(packed),
    ):  # fmt: skip
        with pytest.raises(DataError, match=r"is (truncated|damaged)"):
            articles(tmp_path, content)


def test_pages_that_cannot_be_parsed_or_are_too_long_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = "{{{" * 1500 + "}}}" * 1500
    pages = [page(1, "A", deep), page(2, "B", "<div " * 40_000), page(3, "C", "Some text.")]
    found = articles(tmp_path, dump(pages))
    assert [article.dropped for article in found] == [
        "wikitext that nests too deep", "wikitext that cannot be parsed", "",
    ]  # fmt: skip
    with monkeypatch.context() as short:
        short.setattr(time_limit, "SECONDS", 0.1)
        slow = [page(1, "A", ":" * 200_000 + "a"), page(2, "B", "Some text.")]
        found = articles(tmp_path, dump(slow))
    assert [(article.text, article.dropped) for article in found] == [
        ("", "over 10 s of CPU"), ("B\n\nSome text.", ""),
    ]  # fmt: skip
    monkeypatch.setattr(mediawiki, "_MOST_CHARACTERS", 1_000)
    monkeypatch.setattr(mediawiki, "_PART_BYTES", 100)
    long = [page(1, "A", "So it says. " * 500), page(2, "B", "Some text.")]
    found = articles(tmp_path, dump(long))
    assert [one.dropped for one in found] == ["over 0 million characters", ""]


def test_elements_are_read_as_they_are_nested(tmp_path: Path) -> None:
    """The last revision counts; text ends where an element begins; entities are expanded."""
    doctype = b'<!DOCTYPE mediawiki [\n<!ENTITY two "Two">]>\n<mediawiki'
    content = dump([page(1, "A", "One.")]).replace(b"<mediawiki", doctype)
    text = b'<text xml:space="preserve">&two;<![CDATA[ <page> ]]>words<b>bold</b> lost</text>'
    content = content.replace(b"    </revision>", b"</revision><revision>" + text + b"</revision>")
    [found] = articles(tmp_path, content)
    assert (found.text, found.revised) == ("A\n\nTwo <page> words", "")


def test_addresses_that_are_none_and_redirects_of_other_languages(tmp_path: Path) -> None:
    content = small_dump().replace(b"https://en.wikipedia.org", b"https://[en.wikipedia.org")
    assert content != small_dump()
    found = articles(tmp_path, content)
    assert {article.domain for article in found} == {""} and found[0].text
    marks = ("#ПЕРЕНАПРАВЛЕНИЕ ", "\n# redirect: ", "#重定向", "#Weiterleitung ")
    texts = [f"{mark}[[A]]" for mark in marks]
    kept = ["#A list of [[words]]", "# 5 words", "#redirects are pages"]
    pages = [page(number, f"T{number}", text) for number, text in enumerate(texts + kept)]
    found = articles(tmp_path, dump(pages))
    assert [one.dropped for one in found] == ["redirect"] * 4 + [""] * 3


RUSSIAN = ((-2, "Медиа"), (0, ""), (6, "Файл"), (14, "Категория"))
TOWN = """Город [[Омск]].{{x}} [[Категория:Города]] [[категория:Реки]] [[Изображение:Y.jpg|мини]]
[[Файл:X.jpg|мини|200px|Подпись]] [[Медиа:a.ogg|слушать]] [[fr:Omsk]] [[CSI: Омск]] -{A}-"""


def test_the_dump_names_its_namespaces_or_its_language_does(tmp_path: Path) -> None:
    """By the names of every language if it has neither."""
    for language in ("ru", "xx"):
        [found] = articles(tmp_path, dump([page(1, "Омск", TOWN)], language, namespaces=RUSSIAN))
        image = "мини " if language == "xx" else ""  # a former name of Russian wikis alone
        assert found.text == f"Омск\n\nГород Омск. {image}слушать CSI: Омск -{{A}}-"
    content = dump([page(1, "Омск", TOWN.replace("Медиа", "Media"))], "ru")
    [known] = articles(tmp_path, content)
    [unknown] = articles(tmp_path, content.replace(b' xml:lang="ru"', b""))
    assert known.text == unknown.text == "Омск\n\nГород Омск. слушать CSI: Омск -{A}-"

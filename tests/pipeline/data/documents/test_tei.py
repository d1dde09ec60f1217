"""TEI, compared with a simple reader of the whole tree."""

from __future__ import annotations

import random
import re
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pytest

from pipeline.base.errors import DataError
from pipeline.data.documents import byte_blocks, tei, time_limit
from pipeline.data.documents.read import cut, read
from pipeline.data.documents.records import BadRecord, Dropped, Record
from pipeline.data.documents.sniff import sniff

NOVEL = """<?xml version="1.0" encoding="UTF-8"?>
<?xml-model href="https://example.org/eltec.rng"?>
<!-- a comment -->
<TEI xmlns="http://www.tei-c.org/ns/1.0" xml:id="ENG1">
 <teiHeader><fileDesc><titleStmt><title>A night</title></titleStmt></fileDesc></teiHeader>
 <text>
  <front><p>To my mother</p></front>
  <body>
   <div type="chapter"><head>CHAPTER I</head>
    <p>It was a <hi>dark</hi>
       night<note>In May.</note>, and con<lb break="no"/>templated<lb/>by few &amp; some.</p>
    <pb n="2"/><fw>A NIGHT</fw>
    <lg><l>One line,</l><l>another;</l></lg>
    <p>An <choice><sic>eror</sic><corr>error</corr></choice>, <sic>sic</sic>.</p>
   </div>
  </body>
  <back><p>Printed in Leipzig</p></back>
 </text>
</TEI>
"""
TEXT = (
    "CHAPTER I\n\nIt was a dark night, and contemplated by few & some.\n\n"
    "One line,\n\nanother;\n\nAn error, sic."
)


def records(path: Path) -> list[Record | Dropped | BadRecord]:
    source = sniff(path, "bookcorpus", path.name)
    assert source.format == "tei"
    return [record for piece in cut(source, 10) for record in read(piece)]


@pytest.mark.parametrize("block", [1, 1 << 20])
@pytest.mark.parametrize("prefix", ["", "tei:"])
def test_the_body_is_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, prefix: str
) -> None:
    content = re.sub(r"<(/?)(?=[a-zA-Z])", rf"<\1{prefix}", NOVEL)
    content = content.replace("<tei:TEI xmlns=", "<tei:TEI xmlns:tei=")
    (tmp_path / "novel.xml").write_text(content)
    source = sniff(tmp_path / "novel.xml", "bookcorpus", "novel.xml")
    monkeypatch.setattr(byte_blocks, "BLOCK_BYTES", block)
    [record] = read(cut(source, 10)[0])
    assert isinstance(record, Record)
    assert record.text == TEXT
    assert record.id == f"novel.xml@{content.index(f'<{prefix}TEI')}"
    assert dict(record.cut) == {
        "TEI header": 6, "front and back matter": 10 + 16, "notes": 6, "running heads": 6,
        "the other reading": 4,
    }  # fmt: skip


def test_every_letter_is_text_or_counted_as_cut(tmp_path: Path) -> None:
    """The letters of the tree are those of the text plus those of the cuts."""
    (tmp_path / "novel.xml").write_text(NOVEL)
    [record] = records(tmp_path / "novel.xml")
    assert isinstance(record, Record)
    tree = "".join(ElementTree.fromstring(NOVEL).itertext())
    kept = len(re.sub(r"\s", "", record.text))
    assert kept + sum(dict(record.cut).values()) == len(re.sub(r"\s", "", tree))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('con-<lb break="no"/>templated', "contemplated"),
        ('con-\n <pb n="3" break="no"/><fw>HEAD</fw>\n <lb break="no"/>templated', "contemplated"),
        ('<hi>con\u00ac</hi><lb break="no"/>templated', "contemplated"),
        ('con<lb break="no"/>templated well-<lb/>known', "contemplated well- known"),
        ('<lb break="no"/>one - <lb break="no"/>two', "one -two"),
    ],
)
def test_words_split_over_lines_and_pages(tmp_path: Path, body: str, text: str) -> None:
    (tmp_path / "x.xml").write_text(f"<TEI><text><body><p>{body}</p></body></text></TEI>")
    [record] = records(tmp_path / "x.xml")
    assert isinstance(record, Record)
    assert record.text == text


def test_a_whole_novel(real_data: Path, tmp_path: Path) -> None:
    """Woolf 1927 with an edition's mark-up: chapters, lines, pages, split words, notes."""
    novel = (real_data / "bookcorpus" / "Woolf_Lighthouse_1927.txt").read_text("utf-8-sig")
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", novel)]
    paragraphs = [part for part in paragraphs if part]
    rng = random.Random(0)
    notes = torn = pages = 0
    parts = []
    for number, paragraph in enumerate(paragraphs):
        words = []
        for word in paragraph.split():
            said = escape(word)
            if rng.random() < 0.03 and len(word) > 5 and word.isalpha():
                line = '<lb break="no"/>'
                page = f'<pb n="{pages}" break="no"/><fw>TO THE LIGHTHOUSE</fw>\n{line}'
                said = f"{word[:3]}-\n{rng.choice([page, line])}{word[3:]}"
                torn += 1
            elif rng.random() < 0.01:
                said += '<note place="bottom"><p>The editor says so.</p></note>'
                notes += 1
            elif rng.random() < 0.01:
                said = f"<choice><sic>x{said}</sic><corr>{said}</corr></choice>"
            elif rng.random() < 0.02:
                said = f'<pb n="{pages}"/> {said}'
                pages += 1
            words.append(said)
        ends = "".join(f"{word}{rng.choice([' ', ' ', chr(10), '<lb/>'])}" for word in words)
        chapter = '</div><div type="chapter"><head/>' if number % 40 == 39 else ""
        parts.append(f"<p>{ends}</p>{chapter}")
    path = tmp_path / "Woolf.xml"
    path.write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n<TEI xmlns="http://www.tei-c.org/ns/1.0">'
        "<teiHeader><fileDesc><titleStmt><title>To the lighthouse</title></titleStmt></fileDesc>"
        "</teiHeader><text><front><titlePage><docTitle/></titlePage></front><body>"
        f'<div type="chapter">{"".join(parts)}</div></body><back><p>Printed</p></back></text></TEI>'
    )
    [record] = records(path)
    assert isinstance(record, Record)
    assert record.text.split("\n\n") == paragraphs
    cut_bytes = dict(record.cut)
    assert cut_bytes["notes"] == notes * 16
    assert cut_bytes["hyphens at line ends"] == torn > 300
    assert pages > 500 and notes > 300


def test_a_collection_with_a_book_without_a_body(tmp_path: Path) -> None:
    book = NOVEL[NOVEL.index("<TEI") :]
    empty = "<TEI><teiHeader/><text><front><p>x</p></front></text></TEI>"
    path = tmp_path / "all.xml"
    path.write_text(f"<teiCorpus><teiHeader>about all</teiHeader>{book}{empty}{book}</teiCorpus>")
    found = records(path)
    assert [type(record) for record in found] == [Record, Dropped, Record]
    assert [record.text for record in found if isinstance(record, Record)] == [TEXT, TEXT]


@pytest.mark.parametrize("doctype", ['<!DOCTYPE TEI.2 SYSTEM "teixlite.dtd">\n', ""])
def test_named_entities(tmp_path: Path, doctype: str) -> None:
    path = tmp_path / "old.xml"
    path.write_text(
        f'<?xml version="1.0"?>\n{doctype}'
        "<TEI.2><text><body><p>Caf&eacute;&mdash;&quot;A&quot;</p></body></text></TEI.2>"
    )
    [record] = records(path)
    assert isinstance(record, Record) and record.text == 'Café—"A"'


@pytest.mark.parametrize("damage", ["clipped", "broken"])
def test_damaged(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "novel.xml"
    path.write_text(NOVEL[:-40] if damage == "clipped" else NOVEL.replace("</hi>", "</ho>"))
    with pytest.raises(DataError, match=r"novel\.xml is truncated or damaged"):
        records(path)


def test_a_book_that_takes_too_long_is_dropped_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limit, "SECONDS", 0.05)
    book = NOVEL[NOVEL.index("<TEI") :]
    slow = f"<TEI><text><body>{'<p>a</p>' * 200_000}</body></text></TEI>"
    path = tmp_path / "all.xml"
    path.write_text(f"<teiCorpus>{book}{slow}{book}</teiCorpus>")
    first, dropped, last = records(path)
    assert isinstance(dropped, Dropped) and dropped.reason == "over 10 s of CPU"
    assert all(isinstance(one, Record) and one.text == TEXT for one in (first, last))


def test_a_giant_book_comes_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tei, "PART_BYTES", 64)
    monkeypatch.setattr(tei, "_PART_BYTES", 16)
    path = tmp_path / "all.xml"
    body = "".join(f"<p>It says {number}<note>In May.</note>.</p>" for number in range(100))
    giant = " ".join(f"ri<lb break='no'/>ver{number}" for number in range(100))
    path.write_text(f"<TEI><teiHeader/><text><body>{body}<p>{giant}</p></body></text></TEI>")
    found = [one for one in records(path) if isinstance(one, Record)]
    lines = [line for one in found for line in one.text.split("\n\n")]
    assert lines[:100] == [f"It says {number}." for number in range(100)]
    assert len(lines) > 110
    assert " ".join(lines[100:]).split() == [f"river{number}" for number in range(100)]
    assert sum(dict(one.cut)["notes"] for one in found if one.cut) == 100 * len("InMay.")
    assert len({one.id for one in found}) == len(found) > 9

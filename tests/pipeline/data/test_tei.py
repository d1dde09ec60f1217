"""TEI beside an obvious reading of the whole tree."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pipeline.data import raw_bytes
from pipeline.data.documents import cut, read, sniff
from pipeline.data.records import BadRecord, Dropped, Record
from pipeline.errors import DataError

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
    monkeypatch.setattr(raw_bytes, "BLOCK_BYTES", block)
    [record] = read(cut(source, 10)[0])
    assert isinstance(record, Record)
    assert record.text == TEXT
    assert record.id == f"novel.xml@{content.index(f'<{prefix}TEI')}"
    assert dict(record.cut) == {
        "TEI header": 6, "front and back matter": 10 + 16, "notes": 6, "running heads": 6,
        "the other reading": 4,
    }  # fmt: skip


def test_nothing_but_white_space_is_uncounted(tmp_path: Path) -> None:
    """Letters of the tree are letters of the text and of what was cut."""
    (tmp_path / "novel.xml").write_text(NOVEL)
    [record] = records(tmp_path / "novel.xml")
    assert isinstance(record, Record)
    tree = "".join(ElementTree.fromstring(NOVEL).itertext())
    kept = len(re.sub(r"\s", "", record.text))
    assert kept + sum(dict(record.cut).values()) == len(re.sub(r"\s", "", tree))


def test_a_collection_and_one_without_a_body(tmp_path: Path) -> None:
    book = NOVEL[NOVEL.index("<TEI") :]
    empty = "<TEI><teiHeader/><text><front><p>x</p></front></text></TEI>"
    path = tmp_path / "all.xml"
    path.write_text(f"<teiCorpus><teiHeader>about all</teiHeader>{book}{empty}{book}</teiCorpus>")
    found = records(path)
    assert [type(record) for record in found] == [Record, Dropped, Record]
    assert [record.text for record in found if isinstance(record, Record)] == [TEXT, TEXT]


@pytest.mark.parametrize("doctype", ['<!DOCTYPE TEI.2 SYSTEM "teixlite.dtd">\n', ""])
def test_names_of_characters(tmp_path: Path, doctype: str) -> None:
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

"""wikiextractor's <doc> form."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.data.documents import cut, read, sniff
from pipeline.data.records import BadRecord, Dropped, Record

DOCS = """<doc id="1" url="https://w.org/wiki?curid=1" title="Arve">
Arve

The Arve is a river.
</doc>
<doc id="2" url="https://w.org/wiki?curid=2" title="Title alone">
Title alone



</doc>

<doc id="3" title="No url">
No url

It says <doc> and </doc> in its text.
</doc>
not a document
</doc>
<doc id="4" title="Cut
"""


@pytest.mark.parametrize("block", [1 << 22, 7, 64])
def test_documents(tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.data.raw_bytes.BLOCK_BYTES", block)
    path = tmp_path / "wiki_00"
    path.write_text(DOCS)
    source = sniff(path, "wikipedia", "wiki_00")
    [piece] = cut(source, 100)
    second = DOCS.index('<doc id="2"')
    third = DOCS.index('\n<doc id="3"')
    assert [*read(piece)] == [
        Record("wiki_00@0", "https://w.org/wiki?curid=1", "Arve\n\nThe Arve is a river."),
        Dropped(f"wiki_00@{second}", "title only"),
        Record(f"wiki_00@{third}", "wiki_00", "No url\n\nIt says <doc> and </doc> in its text."),
        BadRecord("wiki_00:18", "no <doc>"),
        BadRecord("wiki_00:20", "no </doc>"),
    ]


def test_invalid_utf8_is_one_bad_record(tmp_path: Path) -> None:
    path = tmp_path / "wiki_00"
    path.write_bytes(DOCS.encode().replace(b"a river", b"a \xff"))
    [piece] = cut(sniff(path, "wikipedia", "wiki_00"), 100)
    assert next(iter(read(piece))) == BadRecord("wiki_00:1", "invalid UTF-8")

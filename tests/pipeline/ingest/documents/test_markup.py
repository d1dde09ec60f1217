"""XML and HTML: what comes before the root element, and what is refused."""

import time
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.ingest.documents.markup import markup_format

XML = b'<?xml version="1.0" encoding="UTF-8"?>\n'
SUBSET = b"""<!DOCTYPE %s [ <!-- it's > a "note ]> -->
  <!ENTITY mdash "&#8212;"> <!ENTITY odd ']>'> <?pi > ]?> ]>\n"""


def test_formats() -> None:
    for content, format in (
        (XML + SUBSET % b"mediawiki" + b"<mediawiki>", "mediawiki"),
        (SUBSET % b"html" + b"<html>", "html"),
        (XML + b"<!-- c --><w:mediawiki>", "mediawiki"),
        (XML + b'<!DOCTYPE w PUBLIC "-//W//>" "w.dtd" [ ]><mediawiki>', "mediawiki"),
        (XML + b"<!DOCTYPE mediawiki><mediawiki>", "mediawiki"),
        (b"\xef\xbb\xbf" + XML + b"<!-- x --><mediawiki xml:lang='en'>", "mediawiki"),
        (b"\n<!doctype HTML><body>", "html"),
        (b"<!-- saved --><!DOCTYPE html PUBLIC '-//W3C' 'x'><p>", "html"),
        (XML + b"<html>", "html"), (b"<HTML>", "html"),
    ):  # fmt: skip
        assert markup_format(Path("file"), "file", content, False) == format, content
        assert markup_format(Path("file"), "file", content, True) in (format, None)
    # without a declaration it needs its name
    assert markup_format(Path("f"), "a/b.HTM.gz", b"<p>One.", False) == "html"
    assert markup_format(Path("f"), "a/b.txt", b"<p>One.", False) is None
    assert markup_format(Path("f"), "b.html", b"One.", False) is None
    assert markup_format(Path("f"), "b.html", b"<html>", True) is None  # --plain-text
    # pages are decoded whatever they are in; other readers take UTF-8
    for encoding in ("utf-16-le", "utf-16-be"):
        for markup, format in (
            ("<!DOCTYPE html><p>x", "html"), ("<html>", "html"), ("Text.", None),
            ("<?xml version='1.0'?><mediawiki>", None), ("<?xml version='1.0'?><svg>", None),
        ):  # fmt: skip
            content = f"\ufeff{markup}".encode(encoding)
            assert markup_format(Path("file"), "file", content, False) == format
    assert markup_format(Path("x"), "x", "\ufeff<html>".encode("utf-32-le"), False) is None


@pytest.mark.parametrize("forced_text", [True, False])
def test_other_xml_is_refused(forced_text: bool) -> None:
    began = time.process_time()
    for content, kind in (
        (XML + b"<rss><item>", "<rss>"), (XML + SUBSET % b"TEI" + b"<TEI>", "<TEI>"),
        (b"<!DOCTYPE lewis SYSTEM 'lewis.dtd'>\n<REUTERS>", "<REUTERS>"), (XML, "no element"),
        (b"<!DOCTYPE x [" + b"<!-- a -->" * 3000, "no element"),
        (b"<!DOCTYPE x ['" + b"<!--'" * 6000, "no element"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=f"file is XML or SGML .{kind}.*cannot be read"):
            markup_format(Path("file"), "file", content, forced_text)
    assert time.process_time() - began < 5  # not for ever

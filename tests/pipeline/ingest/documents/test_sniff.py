"""The format of a file is detected from its first bytes; other data are refused."""

import gzip
import itertools
import json
import lzma
import os
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.ingest.documents import sniff as module
from pipeline.ingest.documents.read import cut
from pipeline.ingest.documents.sniff import read_head, sniff
from pipeline.ingest.extraction.formats import stream
from tests.pipeline.ingest.documents.raw_files import COMPRESS, LINES, in_blocks, records, source
from tests.pipeline.ingest.files import bad_of, put, sniffed, texts_of
from tests.pipeline.ingest.tars import tar


def stream_of(path: Path) -> list[object]:
    """The records of an archive."""
    [piece] = cut(sniffed(path), 1 << 20)
    return [*stream(piece)]


def test_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAD_BYTES", 4)
    heads = {b"": b"", b"0123": b"0123", b"01234": b"01234", b"0" * 9: b"00000"}
    for block, (content, head) in itertools.product((1, 2, 1 << 16), heads.items()):
        in_blocks(monkeypatch, block)
        assert read_head(str(put(tmp_path / "file", content)), "") == head
        assert read_head(str(put(tmp_path / "file", lzma.compress(content))), "xz") == head


def test_records_by_content_not_suffix(tmp_path: Path) -> None:
    """Also after damaged lines, and longer than the head."""
    for name, content in (
        ("wiki_00", '\n {"id": "1", "url": "u", "text": "."}'),
        ("a.txt.gz", '{"text": "One."}'), ("a.csv", '{"text": "One."}'),
    ):  # fmt: skip
        assert sniffed(tmp_path / name, content).format == "jsonl"
    long = b'{"text": "' + b"word " * 20_000 + b'"}\n'
    for before in (b"# exported\n", b"", b"\xef\xbb\xbf"):
        assert source(tmp_path, before + long).format == "jsonl"


def test_data_that_would_be_read_as_text_and_text_that_is_not_data(tmp_path: Path) -> None:
    no_object = "is named as JSON, but no line is an object"
    for name, content, message in (
        ("file", b'["One."]\n["Two.", 2]\n', "seems to be JSON lines of arrays or strings"),
        ("file", b'"One."\n"Two."\n\n"Three."', "seems to be JSON lines of arrays or strings"),
        ("a.json", b"One.", no_object), ("a.jsonl.zst", b"One.", no_object),
        ("a.NDJSON.gz", b"[1]\nOne.\n2", no_object),
    ):  # fmt: skip
        path = put(tmp_path / name, content)
        with pytest.raises(DataError, match=f"{path} {message}.*--plain-text"):
            sniffed(path)
        assert sniffed(path, forced_text=True).format == "text"
        path.rename(tmp_path / "blob")  # as in a cache, where the link has the name
        with pytest.raises(DataError, match=message):
            sniff(tmp_path / "blob", "corpus", name)
    speech = b'"Where?"\n\n"There!"\n\nHe looked.\n\n"Indeed."\n'
    for text in (speech, b"[1]\nOne.\nTwo.\n", b"{{Infobox}}\n", b"{| class\n", b"[[A]] one.\n"):
        assert source(tmp_path, text).format == "text"
    example = b'Such as\n{"a": 1}\nis called an object.\n'
    assert source(tmp_path, example).format == "jsonl"
    assert source(tmp_path, example, forced_text=True).format == "text"
    assert source(tmp_path, LINES, forced_text=True).format == "jsonl"


def test_json_over_several_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size, indent in itertools.product((1, 3000), (0, 2)):
        documents = [{"text": f"\u00e9 {n}.", "n": [n, False]} for n in range(size)]
        for value, shape in (
            ({"documents": documents}, "one JSON object over several lines"),
            ([[n, n] for n in range(size)], "one JSON array"),
        ):
            content = json.dumps(value, indent=indent, ensure_ascii=False).encode()
            for whole in (content, b"\xef\xbb\xbf\n" + content, content + b"\n" + content):
                for forced_text in (False, True):
                    with pytest.raises(DataError, match=f"is {shape}"):
                        source(tmp_path, whole, forced_text=forced_text)
    with pytest.raises(DataError, match="one JSON object over several lines"):
        source(tmp_path, b'{"documents": [\n{"text": "a"},\n{"text": "b"}\n]}')
    text = json.dumps({"a": [1.5e3, True, None, "\u00e9\n\\"], "b": {"c": "d"}}, indent=1)
    for size in range(12, len(text)):  # wherever the head ends
        monkeypatch.setattr(module, "HEAD_BYTES", size)
        with pytest.raises(DataError, match="one JSON object over several lines"):
            source(tmp_path, text.encode())


def test_files_that_are_something_else(tmp_path: Path) -> None:
    without_mark = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
    for content, message in (
        (b"filedesc://a.arc 0.0.0.0 20100101000000 text/plain 3\n1 0 A\n\n", "is an ARC file"),
        (b"", "is empty"), (gzip.compress(b"", mtime=0), "is empty"),
        (bytes(range(256)), "is binary"), (b"\x89PNG\r\n\x1a\n" + bytes(100), "is binary"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" * 9, "is binary"),
        *[
            (text.encode(encoding), f"is {encoding[:6].upper()} text, not UTF-8")
            for text in ("One.", '{"text": "One."}\n', "\n中文。\n", "Ένα. 🙂 " * 30_000)
            for encoding in ("utf-16", "utf-32", *without_mark)
        ],
        (gzip.compress("One.".encode("utf-32"), mtime=0), "is UTF-32"),
        (b"BZh91AY&SY", "is truncated"),
        *((COMPRESS[codec](LINES)[:10], "is (truncated|empty)") for codec in ("gz", "zst", "xz")),
    ):  # fmt: skip
        with pytest.raises(DataError, match=f"{tmp_path / 'file'} {message}"):
            source(tmp_path, content)


MAIL = """From: A <a@example.org>
Subject: =?utf-8?B?w4A=?=
MIME-Version: 1.0
Content-Type: text/plain; charset="utf-8"
Content-Transfer-Encoding: %s
X-Mailer: none

%s
"""
NO_TEXT: dict[str, tuple[str, str]] = {
    "RTF": (r"{\rtf1\ansi\deff0 {\fonttbl {\f0 Times;}} Some words.\par }", "an RTF document"),
    "PostScript": ("%!PS-Adobe-3.0\n%%Pages: 1\n(Some words.) show\n", "a PostScript document"),
    "PDF": ("%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\n", "a PDF document"),
    "pointer": (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12\n",
        "a Git LFS pointer",
    ),
    "mail": (MAIL % ("base64", "U29tZSB3b3JkcyBvZiBhIG1haWwuIFNvbWUgd29yZHMu"), "a mail in base64"),
    "mail box": (f"From a@b Mon\n{MAIL % ('BASE64', 'QUJD' * 19)}", "a mail in base64"),
}  # fmt: skip
SGML = {
    "TREC": "<DOC>\n<DOCNO> AP-1 </DOCNO>\n<TEXT>\nSome words.\n</TEXT>\n</DOC>\n",
    "Gigaword": '<DOC id="A.1" type="story" >\n<HEADLINE>\nWords\n</HEADLINE>\n<TEXT>\nMore.',
    "WMT": '<srcset setid="a" srclang="any">\n<doc docid="b">\n<seg id="1">Words.</seg>\n</doc>\n',
}
TEXTS = {
    "a chat": "<alice> Hello!\n<bob> Hello, <alice>.\n",
    "a fragment": "<p>Some words.</p>\n<b>More</b>",
    "sentences": "<s> Some words . </s>\n<s> More . </s>\n",
    "wikitext": "<ref name=a /> Some words.\n",
    "a plain mail": MAIL % ("7bit", "Some words of a mail."),
    "about mails": "Note: a line\nContent-Transfer-Encoding: base64\nand then\n\nmore words.\n",
    "about RTF": r"In RTF, {\rtf1 is first.",
}


def test_what_is_named_as_text_and_is_none(tmp_path: Path) -> None:
    """Is refused by what it is, in an archive counted; markup is text if the user says so."""
    for name, (content, shape) in NO_TEXT.items():
        for forced_text in (False, True):
            with pytest.raises(DataError, match=f"a.txt is {shape}"):
                sniffed(tmp_path / "a.txt", content, forced_text=forced_text)
        member = put(tmp_path / "a.tar", tar({"a.txt": content.encode()}))
        assert [bad.reason for bad in bad_of(stream_of(member))] == [shape], name
    for name, content in SGML.items():
        with pytest.raises(DataError, match=r"a\.txt is XML or SGML"):
            sniffed(tmp_path / "a.txt", content)
        assert sniffed(tmp_path / "a.txt", content, forced_text=True).format == "text"
        assert bad_of(stream_of(put(tmp_path / "a.tar", tar({"a.txt": content.encode()})))), name
    for name, content in TEXTS.items():
        assert sniffed(tmp_path / "a.txt", content).format == "text", name
        member = put(tmp_path / "a.tar", tar({"a.txt": content.encode()}))
        assert texts_of(stream_of(member)) == [content.strip()], name


def test_what_is_missing_or_not_a_regular_file(tmp_path: Path) -> None:
    found = source(tmp_path, LINES)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path, message in (
        (tmp_path / "nothing.txt", r"nothing\.txt does not exist"), (tmp_path, "is a directory"),
        (tmp_path / "file" / "below", "file/below does not exist"),
        (Path("/dev/null"), "/dev/null is not a regular file"),
        (tmp_path / "pipe", "pipe is not a regular file"),
        (tmp_path / "loop", "loop is a symbolic link that leads back to itself"),
        (tmp_path / ("x" * 300), "cannot be read: File name too long"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=message):
            sniffed(path)
    (tmp_path / "file").unlink()
    with pytest.raises(DataError, match="file cannot be read: No such file"):
        records(found)

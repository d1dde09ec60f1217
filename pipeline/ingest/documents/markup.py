"""The format of XML and HTML, by the root element after declarations, comments and DOCTYPE."""

from __future__ import annotations

import codecs
import contextlib
import re
from pathlib import Path

from pipeline.base.errors import DataError
from pipeline.ingest.documents.byte_blocks import BOM
from pipeline.ingest.documents.records import Format

# What may come before the root element; the alternatives never overlap, so this takes linear time.
_COMMENT = rb"<!--(?:(?!-->).)*-->"
_INSTRUCTION = rb"<\?(?:(?!\?>).)*\?>"
_QUOTED = rb"\"[^\"]*\"|'[^']*'"
_SUBSET = rb"\[(?:%b|%b|%b|<!(?!--)|[^\]\"'<])*\]" % (_QUOTED, _COMMENT, _INSTRUCTION)
_DOCTYPE = rb"<!DOCTYPE\b(?:%b|%b|[^\[>\"'])*>" % (_QUOTED, _SUBSET)
_BEFORE = re.compile(rb"\s+|%b|%b|%b" % (_COMMENT, _INSTRUCTION, _DOCTYPE), re.DOTALL | re.I)
_ROOT = re.compile(rb"<(?:[\w.-]+:)?([\w.-]+)")
_DECLARED = re.compile(rb"\s*<(?:\?xml\b|!DOCTYPE\b)", re.I)
_HTML = re.compile(rb"<!DOCTYPE\s+html\b", re.I)
# Elements of HTML with which a text may start; and <doc id=, as wikiextractor writes.
_IN_TEXT = (
    rb"(?!(?:a|abbr|address|article|aside|b|big|blockquote|body|br|center|cite|code|dd|del|div|dl|"
    rb"dt|em|figure|font|footer|form|h[1-6]|head|header|hr|i|img|ins|kbd|li|link|main|mark|meta|nav|"
    rb"ol|p|pre|q|s|script|section|small|span|strike|strong|style|sub|summary|sup|table|tbody|td|"
    rb"th|thead|title|tr|tt|u|ul|var|doc\s+id)\b)"
)
_SGML = re.compile(rb"\s*<%b([A-Za-z][\w.-]*)(?:\s[^<>]*)?>" % _IN_TEXT)
_CLOSED = re.compile(rb"</%b[A-Za-z][\w.-]*\s*>" % _IN_TEXT)
_HTML_NAME = re.compile(r"\.x?html?(?:\.(?:gz|zst|xz|bz2))?$", re.I)
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def markup_format(path: Path, name: str, head: bytes, forced_text: bool) -> Format | None:
    """The format of a file of markup that starts with `head`; None if it is something else.

    forced_text: the user gave --plain-text, so markup without a declaration is text. Raises
    DataError for XML that cannot be read, which would become text with its tags.
    """
    if head.startswith(_UTF_16):
        return _wide_html(path, name, head, forced_text)
    head = head.removeprefix(BOM)
    is_declared = bool(_DECLARED.match(head))
    if forced_text and not is_declared:
        return None
    at = 0
    is_html = False
    while found := _BEFORE.match(head, at):
        is_html = is_html or bool(_HTML.match(found[0]))
        at = found.end()
    root = _ROOT.match(head, at)
    if root and root[1] == b"mediawiki":
        return "mediawiki"
    is_html = is_html or bool(root and root[1].lower() == b"html")
    # A fragment without a declaration is HTML only if its name says so, else it is text.
    if is_html or (not is_declared and root and _HTML_NAME.search(name)):
        return "html"
    # Without a declaration a start tag is no evidence, such as a name in a chat.
    if not is_declared and not (_SGML.match(head) and _CLOSED.search(head)):
        return None
    kind = f"<{root[1].decode(errors='replace')}>" if root else "no element in its first 64 KiB"
    raise DataError(
        f"{path} is XML or SGML ({kind}), which cannot be read; convert it to JSON lines, Parquet "
        "or UTF-8 text (MediaWiki dumps and HTML are read"
        + (")" if is_declared else "; --plain-text reads it with its tags)")
    )


def _wide_html(path: Path, name: str, head: bytes, forced_text: bool) -> Format | None:
    """HTML if a file in UTF-16 is that, since it is read in any encoding; None for the rest."""
    narrow = head.decode("utf-16", errors="ignore").encode()  # the patterns are of bytes in ASCII
    with contextlib.suppress(DataError):
        return "html" if markup_format(path, name, narrow, forced_text) == "html" else None
    return None

"""Bytes of a web page -> text, where its server, the page itself and its bytes may disagree.

1. A byte order mark decides. UTF-16 and UTF-32 without one show by their NULs, and ISO-2022-JP by
   its escapes.
2. Bytes that are UTF-8, or nearly so, are UTF-8: other encodings hardly ever look like it.
3. Otherwise the first encoding that leaves no damage is taken: the server's, then the page's own;
   else the first that leaves nearly none. Damage is a byte that the encoding does not have, a C1
   control, or a run of accented letters as no language writes them.
4. If these are damaged, so may be the one that is guessed from the bytes: the least damaged wins.

Labels mean what browsers take them for (WHATWG's Encoding Standard), so Latin-1 is Windows-1252.
What leaves no damage is believed, so Cyrillic under the label of another Cyrillic encoding stays
wrong.
"""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

from pipeline.ingest.encodings.utf import nearly_utf8, wide_encoding

HEAD_BYTES = 2048
"""Bytes of a page that are examined for its type, its encoding's width and its label."""

_MARKS = (  # the mark of UTF-32 starts with the one of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LABEL = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_OWN_LABEL = re.compile(
    rb"<meta\s[^>]{0,300}?charset\s*=\s*[\"']?\s*([\w.:-]+)"
    rb"|^\s*<\?xml\s[^>]{0,100}?encoding\s*=\s*[\"']\s*([\w.:-]+)",
    re.IGNORECASE,
)
_SUPERSETS = {
    "gbk": "gb18030", "euc_kr": "cp949", "shift_jis": "cp932", "big5": "big5hkscs",
    "iso8859-11": "cp874", "iso8859-9": "cp1254",
}  # fmt: skip
"""Python's names of what browsers decode, by resiliparse's names."""
_OTHER_LABELS = {
    "latin-1": "cp1252", "cp932": "cp932", "cp936": "gb18030", "cp949": "cp949", "uhc": "cp949",
    "cp950": "big5hkscs",
}  # fmt: skip
"""Labels that pages or the detector give, but not the standard."""
_JAPANESE_ESCAPE = re.compile(rb"\x1b(?:\$[@B]|\([JI])")
_DAMAGE = re.compile("[\x80-\x9f\ufffd]|[\xa1-\xff]{4,}")
_ASCII = re.compile(r"[\0-\x7f]+")
_CONTROLS = re.compile(rb"[\0-\x08\x0e-\x1f]")
_FEW_NULS = 8

_LITTLE_DAMAGE = 0.02
"""Share of the characters beyond ASCII; one character is always little."""


class Decoded(NamedTuple):
    """The text of a page."""

    text: str
    is_overruled: bool
    """True if the server, or else the page, states an encoding, and the text is in another."""


def decode_page(body: bytes, content_type: str) -> Decoded | None:
    """Decode a page by the rules above; None if it is binary.

    content_type: the server's header, such as text/html; charset=utf-8.
    """
    if encoding := wide_or_marked(body):  # rule 1
        return _decode_as(body, encoding, _find_stated(body, content_type))
    if body[:HEAD_BYTES].count(b"\0") > _FEW_NULS:  # not text in a wide encoding, so binary
        return None
    if b"\x1b" in body and body.isascii() and _JAPANESE_ESCAPE.search(body):
        return _decode_as(body, "iso2022_jp", _find_stated(body, content_type))
    if body.isascii():
        return Decoded(body.decode(), False)  # the same text in every encoding that is left
    stated = _find_stated(body, content_type)
    text = nearly_utf8(body)  # rule 2
    if text is None:
        return _decode_as(body, _least_damaged(body, stated), stated)  # rules 3 and 4
    return Decoded(text, stated[:1] not in ([], ["utf-8"]))


def _decode_as(body: bytes, encoding: str, stated: list[str]) -> Decoded:
    text = body.decode(encoding, errors="replace").removeprefix("\ufeff")
    return Decoded(text, stated[:1] not in ([], [encoding]))


def wide_or_marked(body: bytes) -> str:
    """The encoding that a byte order mark names, or the wide one of text without; or empty."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return name
    head = body[:HEAD_BYTES]
    return wide_encoding(head) if head.count(b"\0") > _FEW_NULS else ""


def _find_stated(body: bytes, content_type: str) -> list[str]:
    """The known encodings that the server and the page state, in this order."""
    header, own = _LABEL.search(content_type), _OWN_LABEL.search(body[:HEAD_BYTES])
    names = []
    if header:
        names.append(_find_codec(header[1]))
    if own:
        name = _find_codec((own[1] or own[2]).decode(errors="replace"))
        # A label that can be read as ASCII is not in UTF-16; browsers take it for UTF-8, too.
        names.append("utf-8" if name.startswith("utf-16") else name)
    return [name for name in names if name]


def _find_codec(label: str) -> str:
    """Python's name of an encoding; empty if it is unknown."""
    name = map_encoding_to_html5(label, fallback_utf8=False) or ""
    return _SUPERSETS.get(name, name) or _OTHER_LABELS.get(label.lower(), "")


def _least_damaged(body: bytes, stated: list[str]) -> str:
    """The encoding of a page that is not nearly UTF-8, by the rules 3 and 4."""
    found = {name: _damage(body, name) for name in stated}
    # Sorting is stable: of equally damaged ones the first wins.
    for name, (damage, _) in sorted(found.items(), key=lambda item: item[1][0] > 0):
        if damage <= max(1, _LITTLE_DAMAGE * found[name][1]):
            return name
    guessed = _find_codec(detect_encoding(body, html5_compatible=False) or "")  # rule 4
    for name in ("utf-8", guessed):
        if name:
            found.setdefault(name, _damage(body, name))
    return min(found, key=lambda name: found[name][0] / max(1, found[name][1]))


def guess_encoding(body: bytes) -> str:
    """The encoding of text that is not UTF-8, such as cp1251; empty if it may be anything."""
    name = _find_codec(detect_encoding(body, html5_compatible=False) or "")
    if name in ("", "utf-8") or _CONTROLS.search(body):
        return ""
    damage, beyond = _damage(body, name)
    return name if damage <= _LITTLE_DAMAGE * beyond else ""


def _damage(body: bytes, encoding: str) -> tuple[int, int]:
    """Damaged characters, and all beyond ASCII, of a page in an encoding."""
    beyond = _ASCII.sub(" ", body.decode(encoding, errors="replace"))
    damaged = sum(len(found) for found in _DAMAGE.findall(beyond))
    return damaged, len(beyond) - beyond.count(" ")

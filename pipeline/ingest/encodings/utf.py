"""UTF-8, UTF-16 and UTF-32 that do not say so: UTF-8 with a few damaged bytes, and the wide ones
without a byte order mark."""

from __future__ import annotations

import codecs
import re
import unicodedata

OVERRULED = "in another encoding than stated"
"""The note on a document whose encoding is stated wrongly."""
_ASCII = re.compile(r"[\0-\x7f]+")
_NOT_WESTERN = re.compile("[\xa1-\xff]{4}|[\xd0\xde\xfe\xff]")
"""A run of accented letters as no Western language writes them, or a letter of few languages."""
_CHARACTERS = 2
"""Characters beyond ASCII for each damaged byte, at least. By chance, Japanese in EUC-JP has 0.4 to
0.6 of them, Thai in TIS-620 0.3, Chinese in GBK 0.2, and Western languages none."""


def nearly_utf8(content: bytes) -> str | None:
    """The text, with U+FFFD where a byte is damaged; None if it is in another encoding."""
    text = content.decode(errors="replace")
    beyond = _ASCII.sub("", text)
    damaged = beyond.count("\ufffd")
    return text if len(beyond) - damaged >= _CHARACTERS * damaged else None


def not_utf8(content: bytes) -> str | None:
    """None if it is UTF-8; else how to convert it if it looks like Windows-1252, or nothing."""
    try:
        content.decode()
    except UnicodeDecodeError:
        if nearly_utf8(content) is not None or not _is_windows_1252(content):
            return ""
        return "seems to be Windows-1252: iconv -f WINDOWS-1252 -t UTF-8 converts the file"
    return None


def _is_windows_1252(content: bytes) -> bool:
    """True if what is beyond ASCII are the letters and marks of Western languages."""
    try:
        text = content.decode("cp1252")
    except UnicodeDecodeError:
        return False
    return not _NOT_WESTERN.search(text)


def wide_encoding(head: bytes) -> str:
    """UTF-16-LE and the like if `head` is text in it without a byte order mark, else empty."""
    for encoding in ("UTF-32", "UTF-16"):
        found = {}
        for order in ("LE", "BE"):
            decoder = codecs.getincrementaldecoder(f"{encoding}-{order}")()
            try:
                text = decoder.decode(head)  # may end inside a character
            except UnicodeDecodeError:
                continue
            if text and all(map(_is_written, text)):
                found[f"{encoding}-{order}"] = sum(map(str.isascii, text))
        if found:  # Greek in the wrong order is Korean, but its spaces and digits are not ASCII
            return max(found, key=lambda name: found[name])
    return ""


def _is_written(character: str) -> bool:
    """True if text may hold a character; most of what binary data decodes to is none of these."""
    return character in "\t\n\r\f" or unicodedata.category(character) not in ("Cc", "Cn", "Co")

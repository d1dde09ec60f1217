"""Cleaning: a table of small cases, hard-wrapped texts, idempotence."""

import json
import random
import re
import sys
import unicodedata

import numpy as np

from pipeline.data.text.cleaning import BYTE_KINDS, PLAIN, clean
from pipeline.ingest.corpora.sources import SAMPLE_FILES

INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u202a\u202e\u2060\u2061"
    "\u2064\u2066\u2069\u206a\u206f\u3164\ufeff\uffa0\ufff9\ufffb\ufffc"
)
STAYING = "❤\ufe0f 葛\U000e0100 ᠠ\u180bᠨ 👩\u200d👧 می\u200cخواهم 🏴\U000e0067\U000e007f 🇩🇪"
CASES = {
    "nothing": ("", ""),
    "only white space": (" \t\r\n\u3000 \n", ""),
    "plain": ("One two.", "One two."),
    "outer white space": ("\n\n  One two. \n", "One two."),
    "runs of spaces": ("One   two \t three.", "One two three."),
    "spaces at line ends and starts": ("One. \n   Two.\t\nThree.", "One.\nTwo.\nThree."),
    "blank lines": ("One.\n\n\nTwo.\n  \nThree.\nFour.", "One.\nTwo.\nThree.\nFour."),
    "CR LF, CR": ("One.\r\nTwo.\rThree.\r\n\r\nFour.", "One.\nTwo.\nThree.\nFour."),
    "NEL, U+2028, U+2029": ("One.\x85Two.\u2028Three.\u2029Four.", "One.\nTwo.\nThree.\nFour."),
    "VT, FF": ("One.\x0bTwo.\x0cThree.", "One.\nTwo.\nThree."),
    "no-break and thin spaces": ("a\u00a0b\u2009c\u202fd\u205fe\u3000f\u1680g", "a b c d e f g"),
    "every space of U+2000": ("".join(map(chr, range(0x2000, 0x200B))) + "x\u2003\u2003y", "x y"),
    "controls": ("a\x00b\x01c\x1fd\x7fe\x80f\x9fg", "abcdefg"),
    "soft hyphen": ("co\u00adoper\u00adate", "cooperate"),
    "zero width": ("a\ufeffb\u200bc\u2060d", "abcd"),
    "direction marks": ("a\u200eb\u200fc\u202ad\u202ee\u2066f\u2069g", "abcdefg"),
    "invisible": ("".join(f"a{mark}" for mark in INVISIBLE), "a" * len(INVISIBLE)),
    "selectors and flags stay": (STAYING, STAYING),
    "joiners stay": ("n\u200dn\u200cn", "n\u200dn\u200cn"),
    "removed between spaces": ("a \u200b b", "a b"),
    "removed at the ends": ("\ufeff a\u200b\n\u00ad", "a"),
    "composed": ("e\u0301 A\u030a \u212b \uac00\u11a8", "\u00e9 \u00c5 \u00c5 \uac01"),
    "composes once gone": ("e\u200b\u0301 a\u00ad\u0301\u0323", "\u00e9 \u1ea1\u0301"),
    "special tokens are text": ("<s> [MASK] <mask> </s>", "<s> [MASK] <mask> </s>"),
    "lone surrogate": ("a\ud800b", "a?b"),
    "quotes, dashes, other scripts": ("“é” – 你好 привет 🙂👍🏽", "“é” – 你好 привет 🙂👍🏽"),
    "space before !": ("a !b  !c", "a !b !c"),
}


def test_clean() -> None:
    """At any position in a word of the kernel, and after text that it copies at once.

    Greek makes it copy more: the document needs a check for NFC anyway.
    """
    for name, (text, expected) in CASES.items():
        assert clean([text]).texts() == [expected], name
        fillers = [letter * size for letter in "xж語α" for size in range(18)]
        found = clean([f"{filler}|{text}|{filler}" for filler in fillers]).texts()
        for filler, got in zip(fillers, found):
            inside = got.removeprefix(f"{filler}|").removesuffix(f"|{filler}").strip()
            assert inside == expected, name


def test_each_document_is_followed_by_one_nul() -> None:
    """NFC changes one document and not its neighbours."""
    cleaned = clean([" One. ", "", "T\0wo.", "\n"])
    assert cleaned.buffer.tobytes() == b"One.\0\0Two.\0\0"
    assert cleaned.offsets.tolist() == [0, 5, 6, 11, 12]
    assert (cleaned.buffer.dtype, cleaned.offsets.dtype) == (np.uint8, np.int64)
    assert clean([]).offsets.tolist() == [0]
    cleaned = clean(["One.", "cafe\u0301", "Α and Ω", ""])
    assert cleaned.buffer.tobytes().decode() == "One.\0caf\u00e9\0Α and Ω\0\0"
    assert cleaned.buffer.flags.writeable


LINE = "It was the best of times, it was the worst of times, it was the age"  # 68 bytes


def test_hard_wrapped_lines_are_joined() -> None:
    """Verse and short lines among them keep their breaks; no space joins after a hyphen."""
    paragraph = "\r\n".join([LINE] * 4 + ["of wisdom."])
    text = f"CHAPTER I\r\nThe Period\r\n\r\n{paragraph}\r\n\r\n{paragraph}\r\n"
    joined = " ".join([LINE] * 4 + ["of wisdom."])
    assert clean([text]).texts() == [f"CHAPTER I\nThe Period\n{joined}\n{joined}"]
    prose, verse = "\n".join([LINE] * 12), "Shall I compare thee to\na summer's day?"
    joined = prose.replace("\n", " ")
    text = f"{prose}\n\n{verse}\n\n{prose}"
    assert clean([text]).texts() == [f"{joined}\n{verse}\n{joined}"]
    for end, joined in (
        ("well-", "well-known"), ("he said--", "he said--known"), ("this -", "this - known"),
    ):  # fmt: skip
        text = "\n".join([LINE] * 5 + [f"{LINE[:50]} {end}", "known"]) + "\n\nEnd."
        assert clean([text]).texts()[0].endswith(f" {LINE[:50]} {joined}\nEnd.")


def test_other_texts_keep_their_lines() -> None:
    long = " ".join([LINE] * 2)
    four = "\n".join([LINE] * 5) + "\n\nEnd."  # four lines with another below: one too few
    assert clean([four]).texts() == [four.replace("\n\n", "\n")]
    mixed = "\n".join([LINE] * 6 + [long] * 4) + "\n\nEnd."  # 6 of 9
    assert clean([mixed]).texts() == [mixed.replace("\n\n", "\n")]
    rng = random.Random(0)
    short = [" ".join(["word"] * rng.randint(8, 19)) for _ in range(100)]  # 39 to 94 bytes
    assert clean(["\n\n".join(short)]).texts() == ["\n".join(short)]
    verse = ["a" * rng.randint(1, 9) + " of" * rng.randint(12, 15) for _ in range(100)]
    assert clean(["\n".join(verse)]).texts() == ["\n".join(verse)]


# Characters that the rules treat specially: white space, removed ones, combining marks, jamo.
ALPHABET = (
    [" ", "\n", "\r", "\t", "\x85", "\x00", "\u00ad", "\u2028", "\u200b", "\u3000", "-"] * 3
    + ["e", "a", "\u0301", "\u0323", "\u1100", "\u1161", "\u11a8", "\uac00", "\u0300", "é"] * 2
    + [
        "\u212b",
        "\u0958",
        "\u0f71",
        "\u2000",
        "\u061c",
        "\u034f",
        "\u1160",
        "\U0001d15e",
        "Ω",
        "word",
        "\ud800",
        "\u0b47",
    ]
)


def random_texts(count: int) -> list[str]:
    rng = random.Random(2)
    mixed = ["".join(rng.choices(ALPHABET, k=rng.randint(0, 60))) for _ in range(count)]
    return mixed + [
        "".join(chr(rng.randrange(sys.maxunicode + 1)) for _ in range(30)) for _ in range(count)
    ]


def clean_simply(text: str) -> str:
    """The rules in regular expressions, without hard-wrapped lines."""
    text = text.encode(errors="replace").decode()
    text = re.sub("\r\n|[\r\x0b\x0c\x85\u2028\u2029]", "\n", text)
    gap = (
        f"\\s\x00-\x1f\x7f-\x9f{INVISIBLE}\u202b-\u202d\u2067\u2068\u2062\u2063\u206b-\u206e\ufffa"
    )
    text = re.sub(f"\n[{gap}]*\u3000(?=[^{gap}])", "\n\n", text)  # U+3000 indents a paragraph
    text = re.sub("[\x00-\x08\x0e-\x1f\x7f-\x9f\ufeff\u200b\u2060]", "", text)
    text = re.sub(f"[{INVISIBLE[1:]}\ufffa\u2062\u2063\u206b-\u206e]", "", text)
    text = re.sub("[\u200e\u200f\u202a-\u202e\u2066-\u2069]", "", text)
    text = re.sub("[\t \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]+", " ", text)
    letter = "[a-zA-Z\x80-\xac\xae-\U0010ffff]"
    text = re.sub(f"(?<={letter})\u00ad[ \u00ad]*\n[ \u00ad]*(?={letter})", "", text)
    text = re.sub(" +", " ", text.replace("\u00ad", ""))
    text = re.sub(" *\n[ \n]*", "\n", text).strip(" \n")
    return unicodedata.normalize("NFC", text)


def test_same_as_a_simple_version() -> None:
    texts = random_texts(3000)
    assert clean(texts).texts() == [clean_simply(text) for text in texts]


def test_cleaning_twice_changes_nothing() -> None:
    """Of random and of real text."""
    rng = random.Random(3)
    texts = random_texts(1000)
    # Lines of lengths near the limits for hard-wrapped text, with and without blank lines.
    for endings in ([" y\n", "-\n", "\n"], [" y\n", "-\n", "\n", "\n\n"]) * 500:
        lines = ["x" * rng.randint(30, 80) + rng.choice(endings) for _ in range(rng.randint(5, 60))]
        texts.append("".join(lines))
    texts += [path.read_bytes().decode() for path in sorted(SAMPLE_FILES.glob("books/*"))]
    texts += [
        json.loads(line)[field]
        for file, field in (("articles/wiki_00", "text"), ("stories/stories.jsonl", "body"))
        for line in (SAMPLE_FILES / file).read_text(encoding="utf-8").splitlines()
    ]
    once = clean(texts).texts()
    assert clean(once).texts() == once
    for text in once:
        assert unicodedata.is_normalized("NFC", text)
        assert not any(mark in text for mark in ("\0", "\r", "  ", "\n\n", " \n", "\n ", "\u00ad"))
        assert text == text.strip(" \n")


def test_nfc_never_changes_the_characters_that_skip_it() -> None:
    """The kernel normalizes a document only if it has a character outside this set."""
    planes = range(0x30000)  # the planes above have no decompositions
    pairs = [unicodedata.decomposition(chr(code)).split() for code in planes]
    composed_second = {int(pair[1], 16) for pair in pairs if len(pair) == 2 and pair[0][0] != "<"}
    composed_second |= set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))  # Hangul
    spaces = {0x2000, 0x2001}  # decompose, and are white space here
    for code in range(0x80, 0xA000):
        lead = chr(code).encode()[0]
        if BYTE_KINDS[lead] == PLAIN or lead == 0xC2 or 0x2000 <= code < 0x2040:
            assert code in spaces or unicodedata.is_normalized("NFC", chr(code)), hex(code)
            assert unicodedata.combining(chr(code)) == 0 and code not in composed_second, hex(code)


def test_a_long_run_of_combining_marks() -> None:
    """300 KB of them took half a minute; the result is NFC as for any text."""
    marks = "\u0301\u0323" * 75_000
    [text] = clean([f"a{marks}b"]).texts()
    assert text == "\u1ea1" + "\u0323" * 74_999 + "\u0301" * 75_000 + "b"
    some = "\u0301\u0323\u0344\u0f73\u05b0"
    rng = random.Random(0)
    for size in (900, 1001, 2500):
        mixed = "e" + "".join(rng.choices(some, k=size)) + "\u1100\u1161"
        assert clean([mixed]).texts() == [unicodedata.normalize("NFC", mixed)]

"""Sentence boundaries: F1 on labelled paragraphs, literal cases, invariants for any bytes."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.data.text.sentences import sentence_starts

LABELLED = Path(__file__).parents[3] / "golden" / "sentences.txt"


def pack(documents: list[bytes]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    buffer = np.frombuffer(b"".join(document + b"\0" for document in documents), np.uint8)
    return buffer, np.cumsum([0] + [len(document) + 1 for document in documents])


def starts_of(document: bytes) -> list[int]:
    return list(sentence_starts(*pack([document])))


def split(text: str) -> list[str]:
    raw = text.encode()
    starts = starts_of(raw)
    return [raw[a:b].decode() for a, b in zip(starts, [*starts[1:], len(raw)])]


def labelled_paragraphs() -> list[list[str]]:
    """Sentences of each paragraph, each with its leading space."""
    lines = LABELLED.read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#")).strip()
    paragraphs = [block.splitlines() for block in text.split("\n\n")]
    return [
        [block[0]] + [b if a[-1] in "。！？」』" else " " + b for a, b in pairwise(block)]
        for block in paragraphs
    ]


def f1(paragraphs: list[list[str]]) -> float:
    hits = errors = 0
    for sentences in paragraphs:
        expected = {*np.cumsum([len(sentence.encode()) for sentence in sentences])[:-1].tolist()}
        found = set(starts_of("".join(sentences).encode())[1:])
        hits += len(expected & found)
        errors += len(expected ^ found)
    return 2 * hits / (2 * hits + errors)


def test_f1_on_labelled_paragraphs() -> None:
    """Of all, of those that the rules were tuned on, and of the others."""
    paragraphs = labelled_paragraphs()
    assert len(paragraphs) >= 60
    assert sum(len(sentences) for sentences in paragraphs) >= 250
    for part in (paragraphs, paragraphs[::2], paragraphs[1::2]):
        assert f1(part) >= 0.95


# One case per string: "|" marks the start of a sentence.
CASES = [
    "He left.| She stayed.",
    "He left.|\n",
    "One.\n|Two.\n|Three",
    "A title\n|Then text.| More.",
    "It ended in 1990.| 42 people came.",
    "Pi is 3.14 and version 2.0.1 is out.| Next.",
    "See www.example.org/a.b or mail a.b@example.org.| Then call.",
    "Mr. Smith met Dr. Jones.| Gen. Lee and St. John did not.",
    "The next gen.| Then came others.",
    "J. K. Rowling and George W. Bush met J.R.R. Tolkien.| They spoke.",
    "She was taller than I.| He knew.",
    "The architect I. M. Pei came.| He drew.",
    "In the U.S. Army.| In the U.S.| The army left.",
    "At 9 a.m. Monday it opened.| At 5 p.m.| Police came.",
    "Acme Inc. makes rope.| He works at Acme Inc.| It makes rope.",
    "Pens, ink, etc.| Paper is extra.",
    "Metals (e.g. Sodium) and acids, i.e. Vinegar, cf. Table 2.| Done.",
    "See No. 5, Fig. 2, vol. II and pp. 3-4.| He said no.| I agreed.",
    "On Jan. 5 it snowed.| It was cold in Jan.| Nobody came.",
    "A line of 1980s.| Houses stood there.| It was Ann's.| Nobody lived in it.",
    "The rev. 1990 edition by the Rev. Smith.| It sold.",
    "1. First do this.| 2. Then do that.| IV. The end.",
    '"What?" he said.| "Go!"| She left.',
    "“What?” Mary asked.| “Go!” I said.| “Why?”| He knew.",
    'He said "stop."| She did not.',
    "‘He said “Go.”’| They went.",
    "He waited... and waited…| Then he left.",
    "What?!| No!!!| Yes.",
    "It is old.[1][2]| It is big.[citation needed]| It fell.",
    "(He left.)| She stayed (for now).| Good.",
    "He left.| (She stayed.)| “Good.”| — Said nobody.",
    "Sales fell.| iPhone users wept.| eBay rose.",
    "Yahoo! is old.",
    "Costs rose.| $5 was too much.| €6 was worse.",
    "¿Qué?| ¡Nada!| Ñandú.| Él no.",
    "Он ушёл.| А. С. Пушкин остался.| Да?| Нет.",
    "Έφυγε.| Ήταν νύχτα.",
    "下雨了。|「走吧！」|他说。|什么?|没有。",
    "「何？」と言った。|はい。|とても良い。",
    "वह आया।| क्यों?| हाँ।|ठीक।",
    "هل رأيت؟| لا.| نعم.",
    "no capitals here. none at all! right?",
]


def test_literal_cases() -> None:
    for case in CASES:
        expected = [part for part in case.split("|") if part != "\n"]
        if case.endswith("|\n"):
            expected[-1] += "\n"
        assert split(case.replace("|", "")) == expected


def test_empty_documents_have_no_sentence() -> None:
    buffer, offsets = pack([b"", b"A. B", b"", b"", b"Go. Now.", b""])
    assert list(sentence_starts(buffer, offsets)) == [1, 8, 11]
    assert list(sentence_starts(buffer.copy(), offsets)) == [1, 8, 11]  # which is writable
    for documents in ([], [b""]):
        found = sentence_starts(*pack(documents))
        assert found.size == 0 and found.dtype == np.int64


def random_unicode(rng: np.random.Generator) -> bytes:
    """Text dense in characters that the rules use, mixed with any code point."""
    common = list(".!?…。！？।؟ \n\"'“”‘’«»()[]-—1 2 IVaAéÉяЯ中と😀")
    common += [". ", '." ', "Mr.", " The", "a.m."]
    pieces = rng.choice(np.array(common, dtype=object), rng.integers(0, 60)).tolist()
    points = rng.integers(1, 0x110000, rng.integers(0, 8)).tolist()
    pieces += [chr(point) for point in points if not 0xD800 <= point < 0xE000]
    rng.shuffle(pieces)
    return "".join(pieces).encode()


@pytest.mark.parametrize("kind", ["unicode", "bytes"])
def test_invariants_on_random_documents(kind: str) -> None:
    rng = np.random.default_rng(7)
    documents = [
        random_unicode(rng) if kind == "unicode" else rng.bytes(rng.integers(0, 80))
        for _ in range(3000)
    ]
    buffer, offsets = pack(documents)
    starts = sentence_starts(buffer, offsets)
    assert np.all(np.diff(starts) > 0)
    owners = np.searchsorted(offsets, starts, side="right") - 1
    assert np.all(starts < offsets[owners + 1] - 1)
    for index, document in enumerate(documents):
        found = (starts[owners == index] - offsets[index]).tolist()
        assert found == starts_of(document)
        assert found[:1] == ([0] if document else [])
        if kind == "unicode":
            assert all(document[at] & 0xC0 != 0x80 for at in found)


def test_many_short_sentences_outgrow_the_first_array() -> None:
    assert starts_of(b"A\n" * 5000) == list(range(0, 10000, 2))

"""Quality report of a vocabulary: how it encodes real text and the scripts of the world.

Printed after training and by `pipeline.inspect FOLDER`. A tokenizer that damages a script still
gives ids, and a model trains on them without any error, so the report is the only warning.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer

from pipeline.data.tokenizers.definitions import BYTE_BPE
from pipeline.data.tokenizers.reference_engine import count_unknown
from pipeline.data.tokenizers.vocabulary import Vocabulary

TOP_WORDS = 1000
MEASURED_CHARACTERS = 1 << 20
# Article 1 of the Universal Declaration of Human Rights, 1948; it is in the public domain.
SCRIPTS = {
    "English": "All human beings are born free and equal in dignity and rights.",
    "French": "Tous les êtres humains naissent libres et égaux en dignité et en droits.",
    "Vietnamese": "Tất cả mọi người sinh ra đều được tự do và bình đẳng.",
    "Greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια.",
    "Russian": "Все люди рождаются свободными и равными, и каждый свой.",
    "Hebrew": "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.",
    "Arabic": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق.",
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता है।",
    "Bengali": "সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা নিয়ে জন্মগ্রহণ করে।",
    "Tamil": "மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.",
    "Thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "Korean": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "Japanese": "すべての人間は、生まれながらにして自由であり、平等である。",
    "Chinese": "人人生而自由，在尊严和权利上一律平等。",
}
_ACCENTED = ("English", "French")
"""Languages whose marks only modify letters; an uncased vocabulary removes them on purpose."""


def report(vocabulary: Vocabulary, texts: Iterable[str]) -> list[str]:
    """Lines of the report; texts: the text to measure on, of which about a megabyte is read."""
    tokenizer = Tokenizer.from_str(vocabulary.text_json())
    measured, size = [], 0
    for text in texts:
        measured.append(text[:MEASURED_CHARACTERS])
        size += len(text)
        if size >= MEASURED_CHARACTERS:
            break
    counts = Counter(itertools.chain.from_iterable(text.split() for text in measured))
    words = Counter(
        word for text in measured for word in re.findall(r"[^\W\d_]+", text, re.UNICODE)
    )
    lines = []
    if counts:
        encodings = [tokenizer.encode(text, add_special_tokens=False) for text in measured]
        tokens = sum(len(encoding.ids) for encoding in encodings)
        unknown = [count_unknown(encoding, vocabulary.unk) for encoding in encodings]
        missing, behind = map(sum, zip(*unknown, strict=True))
        top = [word for word, _ in words.most_common(TOP_WORDS)]
        single = sum(_is_token(vocabulary, tokenizer, word) for word in top)
        lines.append(
            f"{tokens / counts.total():.2f} tokens per word, {missing / tokens:.3%} unknown "
            f"(behind them {behind / sum(map(len, measured)):.3%} of the characters); "
            f"{single / max(1, len(top)):.1%} of the {len(top):,} commonest words are one token"
        )
    return [*lines, *_round_trips(vocabulary, tokenizer), *_torn(tokenizer)]


def _is_token(vocabulary: Vocabulary, tokenizer: Tokenizer, word: str) -> bool:
    """Whether a word that follows another is one known token."""
    space = " " if vocabulary.kind == BYTE_BPE else ""
    ids = tokenizer.encode(space + word, add_special_tokens=False).ids
    return len(ids) == 1 and ids[0] != vocabulary.unk


def _round_trips(vocabulary: Vocabulary, tokenizer: Tokenizer) -> list[str]:
    """Which scripts survive encoding and decoding; white space is ignored."""
    found: dict[str, list[str]] = {"exact": [], "case or accents lost": [], "unknown": []}
    for name, text in SCRIPTS.items():
        words = text.split()
        ids = [tokenizer.encode(word, add_special_tokens=False).ids for word in words]
        unknown = sum(vocabulary.unk in word for word in ids)
        if unknown:
            found["unknown"].append(f"{name} {unknown / len(words):.0%} of words")
            continue
        back = "".join(tokenizer.decode(word).replace(" ", "") for word in ids)
        same = back == "".join(words)
        found["exact" if same else "case or accents lost"].append(name)
    return [f"round trip {what}: {', '.join(names)}" for what, names in found.items() if names]


def _torn(tokenizer: Tokenizer) -> list[str]:
    """Warnings if the normalizer removes marks that spell words, or decomposes letters."""
    if tokenizer.normalizer is None:
        return []
    marks, pieces = [], []
    for name, text in SCRIPTS.items():
        before = unicodedata.normalize("NFKC", text.lower()).replace(" ", "")
        after = tokenizer.normalizer.normalize_str(text).replace(" ", "")
        lost = _marks(before) - _marks(after)
        if lost and name not in _ACCENTED:
            marks.append(f"{name} ({lost} of {_marks(before)})")
        if len(after) > len(before):
            pieces.append(name)
    lines = []
    if marks:
        lines.append(
            f"warning: its normalizer removes marks that spell words in {', '.join(marks)}; for "
            "these scripts set data.lower_case=false"
        )
    if pieces:
        lines.append(
            f"warning: its normalizer decomposes letters of {', '.join(pieces)}; for these "
            "scripts set data.lower_case=false or data.tokenizer=byte-bpe"
        )
    return lines


def _marks(text: str) -> int:
    decomposed = unicodedata.normalize("NFD", text)
    return sum(unicodedata.category(character)[0] == "M" for character in decomposed)

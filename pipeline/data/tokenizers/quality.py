"""Quality report of a vocabulary: how it encodes real text and the scripts of the world.

Printed after training and by `pipeline.inspect FOLDER`. A tokenizer that damages a script still
gives ids, and a model trains on them without any error, so the report is the only warning.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer

from pipeline.data.text.scripts import SPACELESS
from pipeline.data.tokenizers.definitions import BYTE_BPE
from pipeline.data.tokenizers.reference_engine import count_unknown
from pipeline.data.tokenizers.vocabulary import Vocabulary

TOP_WORDS = 1000
MEASURED_CHARACTERS = 1 << 20
PER_WORD, PER_LETTER = 1.55, 0.33
"""Tokens that words of a vocabulary's own language have: at most one of the two is exceeded."""
PER_DENSE_LETTER = 1.1
"""PER_LETTER for Hangul and scripts without spaces, where a letter can be a token of its own."""
UNKNOWN = 0.05
"""Share of the letters in words with an unknown token; 0.01 % in English text."""
FEWEST_IDS = 16_000
"""Smaller vocabularies have many words of their own language in pieces, too."""
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


def report_quality(vocabulary: Vocabulary, texts: Iterable[str]) -> list[str]:
    """Lines of the report; texts: the text to measure on, of which about a megabyte is read."""
    tokenizer = Tokenizer.from_str(vocabulary.text_json())
    measured = _first_megabyte(texts)
    spaced = sum(len(text.split()) for text in measured)
    lines = []
    if spaced:
        encodings = [tokenizer.encode(text, add_special_tokens=False) for text in measured]
        tokens = sum(len(encoding.ids) for encoding in encodings)
        unknown = [count_unknown(encoding, vocabulary.unk) for encoding in encodings]
        missing, behind = map(sum, zip(*unknown, strict=True))
        top = [word for word, _ in _words(measured).most_common(TOP_WORDS)]
        ids = _ids(vocabulary, tokenizer, top)
        single = sum(len(word) == 1 and word[0] != vocabulary.unk for word in ids)
        lines.append(
            f"{tokens / spaced:.2f} tokens per word, "
            + (
                f"{missing / tokens:.3%} of them unknown, which stand for "
                f"{behind / sum(map(len, measured)):.3%} of the characters; "
                if missing
                else "none of them unknown; "
            )
            + f"{single / max(1, len(top)):.1%} of the {len(top):,} commonest words are one token"
        )
    return [*lines, *_round_trips(vocabulary, tokenizer), *_torn(tokenizer)]


def language_doubts(vocabulary: Vocabulary, texts: Iterable[str]) -> list[str]:
    """A warning if the text seems to be in another language than the vocabulary's, else nothing.

    texts: as for `report_quality`. Words are runs of letters: numbers, code and emoji say little
    about a language. Text of another language has both more tokens per word and more per letter;
    medical English has only the first, as its words are long, and tweets in short words neither.
    README.md has the figures that the limits are from.
    """
    words = _words(_first_megabyte(texts))
    if not words:
        return []
    ids = _ids(vocabulary, Tokenizer.from_str(vocabulary.text_json()), words)
    counts = words.values()
    letters = sum(len(word) * count for word, count in words.items())
    per_word = sum(len(word) * count for word, count in zip(ids, counts)) / words.total()
    per_letter = per_word * words.total() / letters
    unknown = sum(
        len(word) * count
        for (word, count), found in zip(words.items(), ids)
        if vocabulary.unk in found
    )
    is_unknown = unknown > UNKNOWN * letters
    in_pieces = vocabulary.size >= FEWEST_IDS and per_word > PER_WORD
    if not in_pieces and not is_unknown:
        return []  # nearly always, and before each letter is looked at
    limit = sum(_most_tokens(word) * count for word, count in words.items()) / letters
    if per_letter <= limit and not is_unknown:
        return []
    return [
        f"warning: {per_word:.2f} tokens per word, {per_letter:.2f} per letter, and "
        f"{unknown / letters:.1%} of the letters in words with an unknown token, where text in a "
        f"vocabulary's own language has up to {PER_WORD} per word (or, with long words, up to "
        f"{limit:.2f} per letter) and {UNKNOWN:.0%}: the text may be in another language than the "
        "tokenizer's, or in capitals; a model learns little from words in pieces, so take a model "
        "or tokenizer of the text's language"
    ]


def _most_tokens(word: str) -> float:
    """Tokens that a word may have in a vocabulary of its language if it is long."""
    dense = sum(bool(SPACELESS[ord(letter)]) or "가" <= letter <= "힣" for letter in word)
    return PER_DENSE_LETTER * dense + PER_LETTER * (len(word) - dense)


def _first_megabyte(texts: Iterable[str]) -> list[str]:
    measured, size = [], 0
    for text in texts:
        measured.append(text[:MEASURED_CHARACTERS])  # a document may be far longer
        size += len(text)
        if size >= MEASURED_CHARACTERS:
            break
    return measured


def _words(texts: Iterable[str]) -> Counter[str]:
    """Runs of letters with their marks, counted."""
    words: Counter[str] = Counter()
    for text in texts:
        others = {ord(c): " " for c in set(text) if unicodedata.category(c)[0] not in "LM"}
        words.update(text.translate(others).split())
    return words


def _ids(vocabulary: Vocabulary, tokenizer: Tokenizer, words: Iterable[str]) -> list[list[int]]:
    """Ids of each word as it is after another one."""
    # byte-level BPE has another token for a word without the space before it
    space = " " if vocabulary.kind == BYTE_BPE else ""
    spaced = [space + word for word in words]
    return [encoding.ids for encoding in tokenizer.encode_batch(spaced, add_special_tokens=False)]


def _round_trips(vocabulary: Vocabulary, tokenizer: Tokenizer) -> list[str]:
    """Lines that say which scripts survive encoding and decoding; white space is ignored."""
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
        # such as Hangul in NFD: up to three letters for one
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

"""Words of every script against Unicode's own names and categories."""

import itertools
import random
import re
import unicodedata
from collections import defaultdict

import numpy as np

from pipeline.data.selection.contamination import RUN_WORDS
from pipeline.data.selection.filters import Filters
from pipeline.data.selection.minhash import have_run, run_table, runs
from pipeline.data.selection.words import count_words
from pipeline.data.text.cleaning import clean
from pipeline.data.text.scripts import SPACELESS
from tests.pipeline.data.selection.conftest import arrays

WORDS, LETTERS = 20, 4
"""Of each document: words, and letters of a word."""


def letters_by_script() -> dict[str, list[str]]:
    """The letters whose names begin with the same word, such as COPTIC, in all planes."""
    found = defaultdict(list)
    for character in map(chr, (*range(0x3400), *range(0xA000, 0xAC00), *range(0xF900, 0x20100))):
        if unicodedata.category(character)[0] == "L":
            name = unicodedata.name(character, "UNNAMED")  # as Tangut is
            found[re.split("[ -]", name)[0]].append(character)
    return found


def words(text: str) -> list[str]:
    """The words of a text by the rule, one character at a time."""
    found, open_ = [""], ""
    for character in text:
        kind = unicodedata.category(character)[0]
        alone = bool(SPACELESS[ord(character)])
        if (kind in "LN" and open_ == "word" and not alone) or (kind == "M" and open_):
            found[-1] += character
        else:
            open_ = "letter" if alone else "word" if kind in "LN" else ""
            found.append(character if open_ else "")
    return [re.sub("[A-Z]", lambda c: c[0].lower(), word) for word in found if word]


def counts(*texts: str) -> list[list[int]]:
    found: list[list[int]] = count_words(*arrays(texts)).tolist()
    return found


def test_a_document_of_any_script_survives_min_words_and_is_found() -> None:
    """Words of scripts with spaces end at spaces only."""
    rng = random.Random(0)
    texts = {
        script: " ".join("".join(rng.choices(letters, k=LETTERS)) for _ in range(WORDS))
        for script, letters in letters_by_script().items()
    }
    assert len(texts) > 150 and {"TIFINAGH", "COPTIC", "GLAGOLITIC", "ETHIOPIC"} <= texts.keys()
    text = arrays(texts.values())
    rules = Filters.parse([f"min-words={WORDS}", "min-letters=1"])
    for reason, held in rules.reasons(*text):
        assert [script for script, is_held in zip(texts, held) if is_held] == [], reason
    for number, script in enumerate(texts):
        own = arrays([f"x {texts[script]} y"])
        table = run_table(np.unique(runs(*own, RUN_WORDS)))
        assert have_run(*text, RUN_WORDS, table)[number], script
    found = dict(zip(texts, counts(*texts.values())))
    spaced = [name for name in texts if not SPACELESS[[*map(ord, texts[name])]].any()]
    assert len(spaced) > 140
    assert {script: found[script] for script in spaced if found[script] != [WORDS, WORDS]} == {}


def test_words_by_category() -> None:
    for text, *expected in (
        ("ⵜⴰⵎⴰⵣⵉⵖⵜ ⵜⵓⵏⵙⵉⵢⵜ", 2, 2),  # Tifinagh
        ("Ⲡⲓⲣⲉⲙⲛ̀ⲭⲏⲙⲓ", 1, 1),  # Coptic, with a combining mark
        ("ⶀⶁ ⷀⷁ", 2, 2),  # Ethiopic Extended
        ("ที่นี่", 2, 2),  # two letters, each with a vowel sign and a tone mark
        ("བོད་ཡིག", 4, 4),  # Tibetan, letter by letter
        ("𠀀𠀁 ｱｲｳ", 5, 5),  # extension B, and halfwidth katakana
        ("مرحبا، كيف؟ نعم", 3, 3),  # a comma and a question mark of Arabic
        ("३ ٣ ½ ② 4", 5, 0),
        ("10 m² 5 µm 1º", 5, 3),
        ("❤️ 😀 → ∑", 0, 0),  # symbols, and a mark without a letter
        ("1️⃣ 2", 2, 0),
        ("\U0001e4d0\U0001e4d1 x", 2, 2),  # Nag Mundari, newer than some Pythons
        ("\U0002ebf0\U000323b0", 2, 2),  # extensions I and J, which are newer, too
        ("\ue000 \U000f0000", 0, 0),  # for private use
    ):
        assert counts(text) == [expected], text


def test_words_of_real_and_of_random_text(sample_text: list[str]) -> None:
    rng = random.Random(1)
    ranges = [range(32, 127), range(0xA0, 0x3000), range(0x2000, 0x3100), range(0x20000)]
    noise = ["".join(chr(rng.choice(rng.choice(ranges))) for _ in range(400)) for _ in range(50)]
    # characters without a category in this Python's Unicode are letters
    noise = ["".join(c for c in text if unicodedata.category(c)[0] != "C") for text in noise]
    text = clean([*sample_text[::4], *noise])
    expected = [words(document) for document in text.texts()]
    found = count_words(text.buffer, text.offsets)[:, 0].tolist()
    assert found == [len(its) for its in expected]
    assert len(np.unique(runs(text.buffer, text.offsets, 1))) == len({*itertools.chain(*expected)})

"""The quality report: figures counted by hand, and scripts that normalizers damage."""

from pathlib import Path

from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.quality import FEWEST_IDS, SCRIPTS, language_doubts, report_quality
from pipeline.data.tokenizers.vocabulary import Vocabulary, vocabulary
from tests.pipeline.data.tokenizers.conftest import toy

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def test_figures_by_hand() -> None:
    own = toy([*SPECIALS, "the", "cat", "##s", "."], lower_case=True)
    # 6 words, 9 tokens: the cat ##s the . dog . the cat
    lines = report_quality(own, ["The cats the. dog.", "the cat"])
    assert lines[0].startswith(
        "1.50 tokens per word, 11.111% of them unknown, which stand for 12.000% of the characters; "
        "60.0% of the 5 commonest"
    )
    assert lines[1].startswith("round trip unknown: English 100% of words")


def test_damaged_scripts_are_reported(
    vocabularies: dict[str, Vocabulary], sample_text: list[str]
) -> None:
    """Every script survives a round trip in bytes."""
    for kind, torn in {
        "wordpiece": "",
        "wordpiece-uncased": "Vietnamese Greek Russian Arabic Hindi Thai Korean Japanese",
        "unigram": "",
        "unigram-uncased": "Vietnamese Greek Russian Arabic Hindi Bengali Tamil Thai Japanese",
    }.items():
        lines = report_quality(vocabularies[kind], sample_text[:20])
        warnings = " ".join(line for line in lines if line.startswith("warning"))
        assert all(name in warnings for name in torn.split())
        assert bool(warnings) == bool(torn)
        assert ("decomposes" in warnings) == (kind == "wordpiece-uncased")
        assert "Chinese" not in warnings and "French" not in warnings
    (line,) = report_quality(vocabularies["byte-bpe"], [])
    assert line.startswith("round trip exact: English, French") and line.endswith("Chinese")


ENGLISH = "In the morning the old woman opened the window and looked at the street for a while."
FRENCH = (
    "Le matin, la vieille femme ouvrait les volets et regardait longtemps la rue avant de "
    "descendre acheter le pain. Son mari travaillait encore à la gare, où il vérifiait les "
    "billets des voyageurs pressés. Le dimanche, leurs enfants venaient déjeuner."
)
MEDICAL = (
    "Echocardiography showed moderate mitral regurgitation with left ventricular hypertrophy; "
    "intravenous ceftriaxone was started. Levothyroxine, atorvastatin and hydrochlorothiazide "
    "were continued, and the biopsy revealed adenocarcinoma."
)


def english(words: str, *, size: int = FEWEST_IDS, letters: str = "") -> Vocabulary:
    """WordPiece with these words, all Latin letters and others, filled up with rare words."""
    spelled = sorted({*"abcdefghijklmnopqrstuvwxyz", *letters})
    tokens = [*SPECIALS, *spelled, *(f"##{letter}" for letter in spelled)]
    tokens += sorted(set(words.lower().replace(".", "").split()) - set(tokens))
    tokens += [f"qzx{number}" for number in range(size - len(tokens))]
    return toy(tokens, lower_case=True)


def test_text_of_another_language_is_warned_of_with_figures() -> None:
    """Unknown letters in a vocabulary of any size."""
    own = english(ENGLISH)
    assert language_doubts(own, [ENGLISH, "The street looked old. 12,345.67 :-) x=[0,1,2]"]) == []
    # le (1 word, 2 letters) and pain (4 letters): 6 tokens in 2 words, 1 per letter
    (line,) = language_doubts(own, ["le pain."])
    assert line.startswith("warning: 3.00 tokens per word, 1.00 per letter, and 0.0% of")
    assert "up to 1.55 per word" in line and "up to 0.33 per letter) and 5%" in line
    assert language_doubts(english(ENGLISH, size=FEWEST_IDS - 1), ["le pain."]) == []
    assert language_doubts(own, []) == language_doubts(own, ["12 345 !"]) == []
    small = english(ENGLISH, size=200)
    (line,) = language_doubts(small, [SCRIPTS["Russian"]])
    assert "100.0% of the letters in words with an unknown token" in line
    assert language_doubts(small, [ENGLISH * 5 + " да"]) == []  # 2 of 335 letters


def test_a_letter_of_chinese_or_korean_may_be_a_token() -> None:
    for language in ("Chinese", "Japanese", "Korean"):
        text = SCRIPTS[language]
        known = vocabulary(english(text, letters=text).tokenizer_json.replace(
            '"strip_accents":null', '"strip_accents":false'
        ), "own")  # fmt: skip
        assert language_doubts(known, [text]) == [], language


def test_published_vocabularies(real_data: Path, gpt2: Vocabulary) -> None:
    """The English that comes closest to the limits, and other languages."""
    lines = (real_data / "eval/NER/WNUT17/CONLL-format/data/dev/emerging.dev.conll").read_text()
    tweets = " ".join(line.split()[0] for line in lines.split("\n") if line.strip())
    novel = (real_data / "bookcorpus/Doyle_Hound_1902.txt").read_text()[:50_000].lower()
    bert = read_vocabulary(real_data / "tokenizers" / "bert" / "bert-base-cased-vocab.txt")
    for own in (bert, gpt2):
        assert [language_doubts(own, [text]) for text in (tweets, novel, MEDICAL)] == [[], [], []]
        assert language_doubts(own, [FRENCH]) and language_doubts(own, [SCRIPTS["Chinese"]])

"""The quality report: figures counted by hand, and scripts that normalizers damage."""

from __future__ import annotations

import pytest

from pipeline.data.tokenizers.definitions import wordpiece_json
from pipeline.data.tokenizers.report import report
from pipeline.data.tokenizers.vocabulary import Vocabulary, vocabulary

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def test_figures_by_hand() -> None:
    tokens = [*SPECIALS, "the", "cat", "##s", "."]
    ids = {token: index for index, token in enumerate(tokens)}
    toy = vocabulary(wordpiece_json(ids, lower_case=True), "toy")
    # 6 words, 9 tokens: the cat ##s the . dog . the cat
    lines = report(toy, ["The cats the. dog.", "the cat"])
    assert lines[0].startswith(
        "1.50 tokens per word, 11.111% unknown (behind them 12.000% of the characters); "
        "60.0% of the 5 commonest"
    )
    assert lines[1].startswith("round trip unknown: English 100% of words")


@pytest.mark.parametrize(
    ("kind", "torn"),
    [
        ("wordpiece", ""),
        ("wordpiece-uncased", "Vietnamese Greek Russian Arabic Hindi Thai Korean Japanese"),
        ("unigram", ""),
        ("unigram-uncased", "Vietnamese Greek Russian Arabic Hindi Bengali Tamil Thai Japanese"),
    ],
)
def test_damaged_scripts_are_reported(
    kind: str, torn: str, word_vocabularies: dict[str, Vocabulary], sample_text: list[str]
) -> None:
    lines = report(word_vocabularies[kind], sample_text[:20])
    warnings = " ".join(line for line in lines if line.startswith("warning"))
    assert all(name in warnings for name in torn.split())
    assert bool(warnings) == bool(torn)
    assert ("decomposes" in warnings) == (kind == "wordpiece-uncased")
    assert "Chinese" not in warnings and "French" not in warnings


def test_every_script_survives_a_round_trip_in_bytes(tiny_vocabulary: Vocabulary) -> None:
    lines = report(tiny_vocabulary, [])
    assert len(lines) == 1 and lines[0].startswith("round trip exact: English, French")
    assert lines[0].endswith("Chinese")

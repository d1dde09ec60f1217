import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.ipc
import pytest
import torch

from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.evaluation.zero_shot import grammar
from pipeline.evaluation.zero_shot.grammar import GrammarTest, PairScore, report_grammar
from pipeline.evaluation.zero_shot.grammar_pairs import Completion, Paradigm
from pipeline.evaluation.zero_shot.pseudo_likelihood import encode_sentences, log_probabilities
from pipeline.loading.dataset import Dataset
from tests.pipeline.evaluation.zero_shot.small_model import small_model

CPU = torch.device("cpu")


def paradigm_of(name: str, phenomenon: str, *pairs: tuple[str, str]) -> Paradigm:
    sides = tuple((Completion(good), Completion(bad)) for good, bad in pairs)
    return Paradigm(name, phenomenon, sides)


PARADIGMS = [
    paradigm_of(
        "noun", "agreement",
        ("A cat sat.", "A cats sat."), ("The same.", "The same."), ("A dog ran.", "A dogs ran."),
    ),
    paradigm_of("verb", "agreement", ("He runs on.", "He run on."), ("We run.", "We runs.")),
    paradigm_of("order", "order", ("He saw her.", "Her saw he.")),
]  # fmt: skip


def score(
    paradigms: Sequence[Paradigm], vocabulary: Vocabulary, counts: Any = None, scale: float = 0.3
) -> grammar.GrammarScores:
    test = GrammarTest.of(paradigms, vocabulary, 32)
    return grammar.score_grammar(small_model(scale=scale), test, CPU, counts)


def test_the_higher_sum_wins_and_identical_sentences_tie(tiny_vocabulary: Vocabulary) -> None:
    model, found = small_model(), score(PARADIGMS, tiny_vocabulary)
    wins: dict[str, list[float]] = {}
    for paradigm in PARADIGMS:
        for pair in paradigm.pairs:
            parts = encode_sentences([side.text for side in pair], tiny_vocabulary, 32)
            scores = log_probabilities(model, parts, tiny_vocabulary.mask, CPU)
            good, bad = (float(part.sum()) for part in scores)
            won = 0.5 if pair[0] == pair[1] else float(good > bad)
            wins.setdefault(paradigm.name, []).append(won)
    expected = {name: sum(won) / len(won) for name, won in wins.items()}
    found_wins = {name: each.accuracy for name, each in found.paradigms.items()}
    assert found_wins == pytest.approx(expected)
    noun, verb = found.paradigms["noun"], found.paradigms["verb"]
    assert (noun.ties, verb.ties) == (1, 0)
    assert noun.ties_right == pytest.approx(noun.accuracy + 0.5 / 3)
    assert noun.standard_error == pytest.approx(np.std(wins["noun"], ddof=1) / math.sqrt(3))
    agreement = found.phenomena["agreement"]
    assert agreement.accuracy == pytest.approx((noun.accuracy + verb.accuracy) / 2)
    assert agreement.pairs == 5 and found.overall.pairs == 6
    assert math.isnan(found.overall.frequency_accuracy)
    assert found.fields()["overall"]["frequency_accuracy"] is None
    assert "--data DIR adds" in report_grammar(found)


def test_equal_logits_tie_on_sentences_of_one_length(tiny_vocabulary: Vocabulary) -> None:
    paradigm = paradigm_of("x", "x", ("a b c", "c b a"), ("a a b", "b a a"))
    found = score([paradigm], tiny_vocabulary, scale=1e-30)
    assert found.overall == PairScore(0.5, 0.0, found.overall.frequency_accuracy, 2, 2, 1.0)
    assert "2 ties count half; counted as right, as BabyLM does: 100.0%" in report_grammar(found)


def test_scores_that_are_not_numbers_are_no_lost_pairs(tiny_vocabulary: Vocabulary) -> None:
    paradigm = paradigm_of("x", "x", ("a b c", "c b a"), ("a a b", "b a a"))
    model = small_model()
    next(model.parameters()).data.fill_(math.nan)
    test = grammar.GrammarTest.of([paradigm], tiny_vocabulary, 32)
    found = grammar.score_grammar(model, test, CPU)
    assert math.isnan(found.overall.accuracy) and math.isnan(found.paradigms["x"].accuracy)
    assert found.fields()["overall"]["accuracy"] is None


def test_word_frequencies_are_scored_beside(tiny_vocabulary: Vocabulary) -> None:
    counts = np.ones(tiny_vocabulary.size, np.int64)
    (often,) = encode_sentences([" c"], tiny_vocabulary, 32)
    counts[often.ids[1]] = 1_000
    pairs = (("a c", "a b"), ("a b", "a c"), ("b a", "b d"), ("a c", "a d"))
    found = score([paradigm_of("x", "y", *pairs)], tiny_vocabulary, counts)
    assert found.overall.frequency_accuracy == (1 + 0 + 0.5 + 1) / 4
    assert "by word frequency" in report_grammar(found)
    for word, count in {" b": 0, " c": 9, " d": 2, " e": 2}.items():
        (alone,) = encode_sentences([word], tiny_vocabulary, 32)
        counts[alone.ids[1]] = count
    found = score([paradigm_of("x", "y", ("a b c", "a d e"))], tiny_vocabulary, counts)
    assert found.overall.frequency_accuracy == 1  # add-one smoothing: 1 x 10 against 3 x 3
    counts = np.random.default_rng(0).integers(0, 10**6, tiny_vocabulary.size)
    words = ["dog", "saw", "the", "red", "cat", "in", "town", "today"]
    turned = [" ".join(["so", *words[k:], *words[:k]]) for k in range(8)]
    paradigm = paradigm_of("x", "y", *((each, turned[0]) for each in turned[1:]))
    test = GrammarTest.of([paradigm], tiny_vocabulary, 32)
    assert len({tuple(sorted(part.ids)) for part in test.sequences.values()}) == 1
    found = score([paradigm], tiny_vocabulary, counts)
    assert found.overall.frequency_accuracy == 0.5  # the same words in another order


def test_means_weigh_paradigms_alike_and_one_pair_has_no_error(tiny_vocabulary: Vocabulary) -> None:
    found = score(PARADIGMS[2:], tiny_vocabulary)
    assert found.fields()["paradigms"]["order"]["standard_error"] is None
    json.dumps(found.fields(), allow_nan=False)
    assert "nan" not in report_grammar(found)
    mean = PairScore.mean(
        [PairScore(0.5, 0.3, 0.25, 10, 2, 0.6), PairScore(1.0, 0.4, 0.75, 1_000, 0, 1.0)]
    )
    assert mean == PairScore(0.75, 0.25, 0.5, 1_010, 2, 0.8)


def test_tokens_of_training_rows_are_counted(lesson: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = Dataset.open(lesson, "validation")
    expected = np.zeros(2048, np.int64)
    for path in sorted((lesson / "rows").glob("train-*.arrow")):
        for row in pyarrow.ipc.open_file(path).read_all()["input_ids"].to_pylist():
            expected += np.bincount(row, minlength=2048)
    assert (grammar.count_tokens([dataset], 2048) == expected).all()
    monkeypatch.setattr(grammar, "MOST_TOKENS", 1)
    assert 0 < grammar.count_tokens([dataset], 2048).sum() < expected.sum()

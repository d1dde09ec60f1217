import sys
from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError
from pipeline.evaluation.evaluate_arguments import parse_evaluate


def test_pseudo_perplexity_is_of_sequences_or_of_a_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for given, sequences, text in (("3", 3, None), ("a.txt", 0, Path("a.txt")), ("0", 0, None)):
        words = ["evaluate", "run", "--data", "x", "--pseudo-perplexity", given]
        monkeypatch.setattr(sys, "argv", words)
        found = parse_evaluate()
        assert (found.sequences, found.text) == (sequences, text)


def test_options_without_effect_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for words, message in (
        ("", "nothing to score"),
        ("--mask-rate 0.3", "--mask-rate 0.3 .* --data"),
        ("--mask-rate 1 --data x", r"--mask-rate must be in \[0, 1\), got 1"),
        ("--pseudo-perplexity 3", "--pseudo-perplexity 3 .* --data"),
        ("--pseudo-perplexity -1", "--pseudo-perplexity must .* -1"),
        ("--cloze x --per-sequence f", "--per-sequence .* --data"),
        ("--cloze x --pll word", "--pll word .* --grammar"),
    ):
        monkeypatch.setattr(sys, "argv", ["evaluate", "run", *words.split()])
        with pytest.raises(ConfigError, match=message):
            parse_evaluate()

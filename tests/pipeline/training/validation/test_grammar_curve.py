import re
from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError
from pipeline.config.settings import override
from pipeline.evaluation.zero_shot.grammar import GrammarScores, PairScore
from pipeline.recipes import recipe
from pipeline.training.validation.grammar_curve import grammar_fields, open_grammar
from tests.pipeline.conftest import PAIRS_SHIPPED


def test_each_paradigm_has_as_many_pairs_as_asked(tiny_tokenizer: Path) -> None:
    settings = [f"validation.grammar={PAIRS_SHIPPED}", "validation.grammar_pairs=3"]
    found = open_grammar(override(recipe("roberta_tiny"), settings), tiny_tokenizer)
    assert found and [len(paradigm.pairs) for paradigm in found.paradigms] == [3] * 6
    assert len(found.sequences) <= 36
    assert open_grammar(recipe("roberta_tiny"), tiny_tokenizer) is None  # a run without pairs


def test_pairs_that_cannot_be_scored_are_refused(tiny_tokenizer: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "long-a.txt").write_text(f"{'word ' * 600}\nword\n")
    for name, message in (
        ("none", "none: no such directory or file; give a folder of .txt"),
        ("empty", "empty has no pairs; expected .txt"),
        ("long-a.txt", "positions; shorten it"),
    ):
        run = override(recipe("roberta_tiny"), [f"validation.grammar={tmp_path / name}"])
        beginning = re.escape(f"validation.grammar={tmp_path / name}: ")
        with pytest.raises(ConfigError, match=f"{beginning}.*{re.escape(message)}"):
            open_grammar(run, tiny_tokenizer)


def test_phenomena_have_fields_if_there_are_several() -> None:
    a, b = PairScore(0.5, 0.1, 0.5, 10, 0, 0.5), PairScore(0.7, 0.1, 0.5, 10, 0, 0.7)
    one = GrammarScores({"x": a}, {"x": a}, a)
    assert grammar_fields(one) == {"validation_grammar": 0.5}
    two = GrammarScores({"x": a, "y": b}, {"x": a, "y": b}, PairScore(0.6, 0.1, 0.5, 20, 0, 0.6))
    assert grammar_fields(two) == {
        "validation_grammar": 0.6, "validation_grammar/x": 0.5, "validation_grammar/y": 0.7,
    }  # fmt: skip

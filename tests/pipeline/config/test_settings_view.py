import re
from dataclasses import dataclass
from typing import Annotated

import pytest

from pipeline.base.errors import ConfigError
from pipeline.config.run import Run
from pipeline.config.schema import Legacy, Range, Setting, setting_types
from pipeline.config.settings import override
from pipeline.config.settings_view import (
    _meanings,
    _type_in_words,
    describe_settings,
    format_settings,
)
from pipeline.recipes import RECIPES, recipe

RUN = recipe("bert_base_published")


def test_every_setting_and_section_is_described() -> None:
    views = {view.path: view for view in describe_settings(RUN)}
    assert list(views) == list(setting_types(Run))
    assert all(view.meaning and view.type for view in views.values())
    length = views["data.sequence_length"]
    assert (length.type, length.value) == ("a whole number in [3, 65535]", "512")
    assert length.meaning.startswith("Tokens per sequence")
    assert views["optimizer.kind"].type == "one of lamb, adamw, stable_adamw"
    assert views["data.lower_case"].type == "true or false"
    assert views["steps"].type == "a whole number of at least 1"
    assert views["optimizer.peak_lr"].type == "a number above 0"
    assert (views["data.masks.rate"].section, views["steps"].section) == ("data.masks", "")
    lines = format_settings(RUN).splitlines()
    assert lines[0] == "bert_base_published: the run itself"
    assert any(line.startswith("objective.generator: Model that replaces tokens") for line in lines)
    heading = lines.index("schedule: Learning rate over steps.")
    assert lines[heading - 1] == "" and lines[heading + 1].startswith("  schedule.kind=linear")


@pytest.mark.parametrize("name", ["bert_base_published", "electra_small", "roberta_tiny"])
def test_values_are_written_as_set_reads_them(name: str) -> None:
    run = recipe(name)
    assigned = [f"{view.path}={view.value}" for view in describe_settings(run)]
    assert override(recipe("albert_xlarge"), assigned) == run


@pytest.mark.parametrize("name", RECIPES)
def test_all_settings_fit_the_columns(name: str) -> None:
    text = format_settings(recipe(name))
    assert max(map(len, text.splitlines())) <= 100
    shown = re.findall(r"^  ([a-z][\w.]*)=", text, re.M)
    assert sorted(shown) == sorted(setting_types(Run))  # each once, grouped by section


def test_a_path_selects_a_setting_or_a_section() -> None:
    title, setting, meaning = format_settings(RUN, "data.seed").splitlines()
    assert title == "data: Sequences, masks and vocabulary."
    assert setting == f"  {'data.seed=0':40}  a whole number in [0, 2**63)"
    assert meaning.startswith("      Seed of ")
    assert re.findall(r"^  (\S+)=", format_settings(RUN, "validation"), re.M) == [
        "validation.every", "validation.grammar", "validation.grammar_pairs",
        "validation.mask_rate",
    ]  # fmt: skip
    within = re.findall(r"^  ([\w.]+)=", format_settings(RUN, "data"), re.M)
    assert "data.seed" in within and "data.masks.rate" in within and "seed" not in within
    # a long list of choices has its own line
    assert format_settings(RUN, "data.format").splitlines()[1:3] == [
        "  data.format=segment_pair",
        "      one of full_sentences, doc_sentences, segment_pair, sentence_pair, single_segment",
    ]
    for path, near in (("data.masks.rat", "did you mean data.masks.rate"), ("foo", "no setting")):
        with pytest.raises(ConfigError, match=f"unknown setting {path}; {near}"):
            format_settings(RUN, path)


def test_meanings_and_legacy_values_are_in_one_line() -> None:
    @dataclass
    class Tea:
        leaves: Annotated[int, Range("[1, inf)")]  # a comment
        """Leaves,
        in grams."""
        hot: bool
        """Whether it is hot."""

    assert _meanings(Tea) == {"leaves": "Leaves, in grams.", "hot": "Whether it is hot."}
    setting = Setting(float, Range("[0, 1]"), Legacy(0.0))
    assert _type_in_words(setting) == "a number in [0, 1]; in files without it: 0.0"

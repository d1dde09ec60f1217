from __future__ import annotations

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


def test_every_setting_is_described() -> None:
    views = {view.path: view for view in describe_settings(RUN)}
    assert list(views) == list(setting_types(Run))
    assert all(view.meaning and view.type for view in views.values())
    length = views["data.sequence_length"]
    assert (length.type, length.value) == ("a whole number in [3, 65535]", "512")
    assert length.meaning == "Tokens per sequence, special tokens included."
    assert views["optimizer.kind"].type == "one of lamb, adamw, stable_adamw"
    assert views["data.lower_case"].type == "true or false"
    assert views["steps"].type == "a whole number of at least 1"
    assert views["optimizer.peak_lr"].type == "a number above 0"
    assert (views["data.masks.rate"].section, views["steps"].section) == ("data.masks", "")


@pytest.mark.parametrize("name", ["bert_base_published", "electra_small", "roberta_tiny"])
def test_values_are_written_as_set_reads_them(name: str) -> None:
    run = recipe(name)
    assigned = [f"{view.path}={view.value}" for view in describe_settings(run)]
    assert override(recipe("albert_xlarge"), assigned) == run


def test_a_legacy_value_is_shown() -> None:
    setting = Setting(float, Range("[0, 1]"), Legacy(0.0))
    assert _type_in_words(setting) == "a number in [0, 1]; in files without it: 0.0"


@pytest.mark.parametrize("name", RECIPES)
def test_all_settings_fit_the_columns(name: str) -> None:
    text = format_settings(recipe(name))
    assert max(map(len, text.splitlines())) <= 100
    shown = re.findall(r"^  ([a-z][\w.]*)=", text, re.M)
    assert sorted(shown) == sorted(setting_types(Run))  # each once, grouped by section


def test_sections_have_their_meaning() -> None:
    lines = format_settings(RUN).splitlines()
    assert lines[0] == "bert_base_published: the run itself"
    assert (
        "objective.generator: Model that replaces tokens, of every kind that has a generator."
        in lines
    )
    heading = lines.index("schedule: Learning rate over steps.")
    assert lines[heading - 1] == ""
    assert lines[heading + 1].strip().startswith("schedule.kind=linear")


def test_a_path_selects_a_setting_or_a_section() -> None:
    assert format_settings(RUN, "data.seed").splitlines() == [
        "data: Sequences, masks and vocabulary.",
        "  data.seed=0                               a whole number in [0, 2**63)",
        "      Seed of the validation split, the rows and the masks; independent of the run's "
        "`seed`.",
    ]
    assert re.findall(r"^  (\S+)=", format_settings(RUN, "validation"), re.M) == [
        "validation.every", "validation.grammar", "validation.grammar_pairs",
        "validation.mask_rate",
    ]  # fmt: skip
    within = re.findall(r"^  ([\w.]+)=", format_settings(RUN, "data"), re.M)
    assert "data.seed" in within and "data.masks.rate" in within and "seed" not in within


def test_a_long_list_of_choices_has_its_own_line() -> None:
    assert format_settings(RUN, "data.format").splitlines()[1:3] == [
        "  data.format=segment_pair",
        "      one of full_sentences, doc_sentences, segment_pair, sentence_pair, single_segment",
    ]


@pytest.mark.parametrize(
    "path, message",
    [
        ("data.masks.rat", "unknown setting data.masks.rat; did you mean data.masks.rate?"),
        (
            "foo",
            "unknown setting foo; no setting has a similar name; `tenfold settings RECIPE` lists "
            "them all",
        ),
    ],
)
def test_an_unknown_path_names_the_nearest(path: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        format_settings(RUN, path)
    assert str(error.value) == message


def test_meanings_are_the_docstrings_in_one_line() -> None:
    @dataclass
    class Tea:
        leaves: Annotated[int, Range("[1, inf)")]  # a comment
        """Leaves,
        in grams."""
        hot: bool
        """Whether it is hot."""

    assert _meanings(Tea) == {"leaves": "Leaves, in grams.", "hot": "Whether it is hot."}

"""The phases of a run; test_feed.py checks what they read, one after the other."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import pytest

from pipeline.config import data_settings
from pipeline.config.data_settings import DataSettings
from pipeline.config.run import Run
from pipeline.config.schema import Legacy
from pipeline.config.settings import from_dict, override, to_dict
from pipeline.errors import ConfigError, DataError
from pipeline.loading.dataset import Dataset
from pipeline.recipes import recipe
from pipeline.training.planning.phases import as_read, check_lengths, check_shards, runs_of

BERT = recipe("bert_base_published")
PHASE = '{"steps":9,"sequence_length":16,"sequences":8}'


def tiny(*settings: str) -> Run:
    return override(recipe("roberta_tiny"), [f"phases=[{PHASE}]", *settings])


def test_the_phases_of_bert_are_those_of_the_paper() -> None:
    """90 % of the steps at 128; a micro-batch holds equally many tokens in both phases."""
    (begin, end, first), (again, last, second) = runs_of(BERT)
    assert (begin, end, again, last) == (0, 900_000, 900_000, 1_000_000)
    assert (first.data.sequence_length, second.data.sequence_length) == (128, 512)
    assert first.batch.sequences == second.batch.sequences == 256
    assert first.batch.per_device == 4 * second.batch.per_device
    assert first.schedule == second.schedule == BERT.schedule and first.steps == 1_000_000


def test_a_run_without_phases_is_one() -> None:
    run = recipe("roberta_tiny")
    assert runs_of(run) == [(0, run.steps, run)]


def test_a_batch_grows_in_the_first_phase_alone() -> None:
    grows = tiny("batch.warmup_steps=5", "batch.first_sequences=2")
    assert [part.batch.warmup_steps for *_, part in runs_of(grows)] == [5, 0]


def test_shards_belong_to_the_phase_of_their_length(lesson: Path, short: Path) -> None:
    long, small = Dataset.open(lesson), Dataset.open(short)
    run = tiny()
    assert as_read(run, small).data.sequence_length == 16
    check_shards(run, [small, long], "")
    check_lengths(run, [long, small])
    check_lengths(recipe("roberta_tiny"), [small])  # check_shards reports what is wrong with it
    with pytest.raises(DataError, match=r"with data.masks.rate=0.15, the run asks for 0.2"):
        check_shards(override(run, ["data.masks.rate=0.2"]), [small, long], "")
    family = f"--set data.tokenizer={long.manifest.data['tokenizer']} if that is what you want"
    with pytest.raises(DataError, match=family):
        check_shards(recipe("bert_tiny"), [long], "")
    with pytest.raises(DataError, match="prepared with tokenizer sha256"):
        check_shards(run, [small, long], "0" * 64)
    missing = (
        "the phases of the run read sequences of 16 and 32, but no --data has any of 16; prepare "
        "the text with --set data.sequence_length=16 too and add its directory to --data"
    )
    with pytest.raises(ConfigError, match=re.escape(missing)):
        check_lengths(run, [long])
    unread = f"no phase reads {short}, which has sequences of 16; the phases of the run read 24 and"
    other = Dataset.open(short)
    other.manifest = replace(small.manifest, sequence_length=24)
    with pytest.raises(ConfigError, match=re.escape(unread)):
        check_lengths(tiny("phases.0.sequence_length=24"), [long, other, small])


@dataclass(frozen=True, kw_only=True, slots=True)
class LaterData(DataSettings):
    blanks: Annotated[int, Legacy(0)]


@dataclass(frozen=True, kw_only=True, slots=True)
class LaterRun(Run):
    """A run as a later version may define it."""

    data: LaterData


def test_shards_from_before_a_setting_have_its_legacy_value(
    lesson: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards with another value fit no run with the legacy value, though that is not stored."""
    old, new = Dataset.open(lesson), Dataset.open(lesson)
    new.manifest = replace(new.manifest, data=new.manifest.data | {"blanks": 3})
    run = recipe("roberta_tiny")
    same = from_dict(LaterRun, to_dict(run))
    other = override(same, ["data.blanks=3"])
    with pytest.raises(DataError, match=r"data\.blanks=3, which this version does not know"):
        check_shards(run, [new], "")
    monkeypatch.setattr(data_settings, "DataSettings", LaterData)
    check_shards(same, [old], "")
    check_shards(other, [new], "")
    with pytest.raises(DataError, match=r"prepared with data\.blanks=0, the run asks for 3;"):
        check_shards(other, [old], "")
    with pytest.raises(DataError, match=r"prepared with data\.blanks=3, the run asks for 0;"):
        check_shards(same, [new], "")


def test_an_absent_setting_of_shards_is_named(lesson: Path) -> None:
    damaged = Dataset.open(lesson)
    kept = {name: value for name, value in damaged.manifest.data.items() if name != "seed"}
    damaged.manifest = replace(damaged.manifest, data=kept)
    with pytest.raises(DataError, match=r"was prepared without data\.seed, the run asks for 0;"):
        check_shards(recipe("roberta_tiny"), [damaged], "")

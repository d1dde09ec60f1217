"""The commands of TABLES.md: every arm is a run, differs as its name says, and can be planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.experiments.arms import Table, arms_from_arguments, run_of
from pipeline.loading.dataset import Dataset
from pipeline.training.planning.plan import make_plan
from tests.pages import ROOT, Page, split
from tests.pipeline.experiments.differences import differing

PAGE = Page("pipeline/recipes/TABLES.md", (ROOT / "pipeline/recipes/TABLES.md").read_text())
SIZE = {"encoder.width", "encoder.heads", "encoder.feed_forward"}
COMPARED = {
    "batch": {"batch.sequences", "steps", "optimizer.peak_lr", "schedule.warmup_steps"},
    "steps-16gb": {"steps"},
    "steps-160gb": {"steps"},
    "embedding-shared": {"encoder.embedding_width"},
    "embedding-own": {"encoder.embedding_width"},
    "depth": {"encoder.layers"},
    "depth-xxlarge": {"encoder.layers"},
    "width": SIZE,
    "size": SIZE | {"encoder.layers"},
    "dropout": {"encoder.dropout"},
    "generator": {"objective.generator.width"},
    "tying": {"objective.generator.embeddings", "objective.generator.tied"},
    "pairs": {"data.format", "data.segments.label", "objective.kind"},
    "nsp": {"data.segments.label", "objective.kind"},
}
"""The settings that the arms of each command compare, by the name of its output."""


def read(command: str) -> tuple[str, Table]:
    """The name of a command's output, and its arms."""
    words = split(command)
    assert words[:3] == ["python", "-m", "pipeline.ablate"]
    given: dict[str, str] = {}
    common: list[str] = []
    arms: list[tuple[str, list[str]]] = []
    for option, value in zip(words[3::2], words[4::2], strict=True):
        if option == "--arm":
            arms.append((value, []))
        elif option == "--set":
            (arms[-1][1] if arms else common).append(value)
        else:
            given[option] = value
    assert set(given) == {"--recipe", "--corpus", "--seeds", "--output"}
    assert given["--corpus"] in ("16gb", "160gb")
    table = arms_from_arguments(given["--recipe"], [(name, common + own) for name, own in arms])
    return Path(given["--output"]).name, table


ABLATIONS = dict(map(read, PAGE.commands("bash")))


def test_every_choice_has_a_command() -> None:
    assert set(ABLATIONS) == set(COMPARED)
    assert len(PAGE.commands("bash")) == len(COMPARED)


@pytest.mark.parametrize("name", COMPARED)
def test_arms_differ_in_what_is_compared(name: str) -> None:
    assert differing(ABLATIONS[name]) == COMPARED[name]


@pytest.mark.parametrize("name", COMPARED)
def test_every_arm_can_be_planned(name: str, prepared: Path) -> None:
    """On 64 ranks; only the number of sequences is that of the sample."""
    sets = {split: [Dataset.open(prepared, split)] for split in ("train", "validation")}
    read_tokens = set()
    for arm in ABLATIONS[name].arms:
        run = run_of(arm)
        plan = make_plan(run, 64, 1, sets["train"], sets["validation"], run.steps)
        assert plan.sequences == run.batch.sequences, arm.name
        read_tokens.add(run.steps * run.batch.sequences * run.data.sequence_length)
    assert len(read_tokens) == (len(ABLATIONS[name].arms) if name.startswith("steps") else 1)


def test_the_page_is_narrow_and_linked() -> None:
    assert max(map(len, PAGE.text.splitlines())) <= 120
    assert "](TABLES.md)" in (PAGE.folder / "README.md").read_text()

"""The commands of TABLES.md: every arm is a run, differs as its name says, and can be planned."""

from pathlib import Path

import pytest

from pipeline.config.settings import flatten, to_dict
from pipeline.experiments.ablate_arguments import parse_ablate, read_ablation
from pipeline.experiments.ablation import Ablation
from pipeline.loading.dataset import Dataset
from pipeline.planning.phase_plan import make_plan
from tests.pages import ROOT, Page, split

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
    "dropout": {"encoder.dropout", "encoder.attention_dropout"},
    "attention-dropout": {"encoder.attention_dropout"},
    "generator": {"objective.generator.width"},
    "tying": {"objective.generator.embeddings", "objective.generator.tied"},
    "pairs": {"data.format", "data.segments.label", "objective.kind"},
    "nsp": {"data.segments.label", "objective.kind"},
}
"""The settings that the arms of each command compare, by the name of its output."""


def read(command: str) -> tuple[str, Ablation]:
    """The name of a command's output, and what pipeline.ablate makes of the command."""
    words = split(command)
    assert words[:3] == ["python", "-m", "pipeline.ablate"]
    ablation = read_ablation(parse_ablate(words[3:]))
    return ablation.output.name, ablation


ABLATIONS = dict(map(read, PAGE.commands("bash")))


def test_every_choice_has_a_command_on_a_narrow_page() -> None:
    assert set(ABLATIONS) == set(COMPARED)
    assert len(PAGE.commands("bash")) == len(COMPARED)
    assert max(map(len, PAGE.text.splitlines())) <= 120
    assert "](TABLES.md)" in (PAGE.folder / "README.md").read_text()


@pytest.mark.parametrize("name", COMPARED)
def test_arms_differ_in_what_is_compared_and_can_be_planned(name: str, prepared: Path) -> None:
    """And in how often they are validated, which follows from their steps; on 64 ranks, or as many
    as a batch has sequences."""
    arms = ABLATIONS[name].arms
    first, *others = [flatten(to_dict(arm.run)) for arm in arms]
    found = {path for path in first for other in others if other[path] != first[path]}
    assert found - {"validation.every"} == COMPARED[name]
    train, held_out = ([Dataset.open(prepared, part)] for part in ("train", "validation"))
    read_tokens = set()
    for arm in arms:
        run = arm.run
        plan = make_plan(run, min(64, run.batch.sequences), 1, train, held_out, run.steps)
        assert plan.sequences == run.batch.sequences, arm.name
        read_tokens.add(run.steps * run.batch.sequences * run.data.sequence_length)
    assert len(read_tokens) == (len(arms) if name.startswith("steps") else 1)

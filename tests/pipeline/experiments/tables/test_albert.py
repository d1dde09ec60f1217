import pytest

from pipeline.experiments.arms import SCALES
from pipeline.experiments.tables.albert import pair, sharing
from pipeline.experiments.tables.table import run_of
from tests.pipeline.experiments.differences import values
from tests.pipeline.recipes.on_meta import sizes

NARROW = {"smoke": 64, "mini": 128, "base": 128}
SHARED = {"all": "all", "attention": "attention", "feed-forward": "feed_forward", "none": "none"}


@pytest.mark.parametrize("scale", SCALES)
def test_arms_differ_only_in_sharing_and_width_of_words_or_in_the_pairs(scale: str) -> None:
    expected = {
        f"{arm}{suffix}": {"encoder.sharing": shared, "encoder.embedding_width": width}
        for suffix, width in (("", NARROW[scale]), ("-wide", 0))
        for arm, shared in SHARED.items()
    }
    assert values(sharing(scale)) == expected
    assert values(pair(scale)) == {
        "none": {"data.segments.label": "none", "objective.kind": "mlm"},
        "nsp": {"data.segments.label": "next", "objective.kind": "mlm_pair"},
        "sop": {"data.segments.label": "order", "objective.kind": "mlm_pair"},
    }


def test_parameters_are_those_of_the_paper() -> None:
    """The paper counts the encoder with its pooler, without heads, in millions."""
    for arm in sharing("base").arms:
        counts = sizes(run_of(arm))
        body = sum(size for name, size in counts.items() if name.startswith(("albert.", "bert.")))
        assert body / 1e6 == pytest.approx(arm.published["parameters (M)"], abs=1.1), arm.name


def test_published_figures_average_to_the_published_average() -> None:
    """The paper averages the tasks, F1 and EM of each SQuAD first (its table 2's caption)."""
    for arm in (*sharing("base").arms, *pair("base").arms):
        scores = arm.published
        tasks = [scores[f"{task} accuracy"] for task in ("MNLI", "SST-2", "RACE")]
        for squad in ("SQuAD 1.1", "SQuAD 2.0"):
            tasks.append((scores[f"{squad} F1"] + scores[f"{squad} EM"]) / 2)
        assert sum(tasks) / 5 == pytest.approx(scores["average"], abs=0.11), arm.name

import pytest

from pipeline.experiments.arms import SCALES
from pipeline.experiments.tables.roberta import formats, masking
from pipeline.experiments.tables.table import run_of
from tests.pipeline.experiments.differences import values

NSP = {"data.segments.label": "next", "objective.kind": "mlm_pair"}
NO_NSP = {"data.segments.label": "none", "objective.kind": "mlm"}


@pytest.mark.parametrize("scale", SCALES)
def test_arms_differ_in_masks_or_in_format_and_objective_alone(scale: str) -> None:
    assert values(masking(scale)) == {
        "static": {"data.mask_mode": "static", "data.duplicates": 1},
        "ten": {"data.mask_mode": "duplicates", "data.duplicates": 10},
        "per-epoch": {"data.mask_mode": "per-epoch", "data.duplicates": 0},
    }
    assert values(formats(scale)) == {
        "segment-pair": {"data.format": "segment_pair", **NSP},
        "sentence-pair": {"data.format": "sentence_pair", **NSP},
        "full-sentences": {"data.format": "full_sentences", **NO_NSP},
        "doc-sentences": {"data.format": "doc_sentences", **NO_NSP},
    }


@pytest.mark.parametrize(("scale", "tokens"), [("smoke", 2_048), ("mini", 2_048), ("base", 2**22)])
def test_formats_read_full_rows_worth_of_tokens(scale: str, tokens: int) -> None:
    for arm in formats(scale).arms:
        run = run_of(arm)
        assert run.batch.step_tokens == tokens == run.batch.sequences * run.data.sequence_length
        assert run.data.segments.short_share == 0


def test_published_figures_are_those_of_their_rows() -> None:
    """Ten stored masks are what the paper calls static; it trained no model with one."""
    one, ten, fresh = masking("smoke").arms
    assert not one.published
    assert (ten.published["SQuAD 2.0 F1"], fresh.published["SQuAD 2.0 F1"]) == (78.3, 78.7)
    assert "row static" in ten.source and "row dynamic" in fresh.source

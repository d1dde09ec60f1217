import pytest

from pipeline.experiments.arms import SCALES
from pipeline.experiments.tables.spanbert import masking
from tests.pipeline.experiments.differences import values


@pytest.mark.parametrize("scale", SCALES)
def test_arms_differ_in_masks_and_the_boundary_objective_alone(scale: str) -> None:
    assert values(masking(scale)) == {
        "sub-words": {"data.masking": "token", "objective.kind": "mlm"},
        "words": {"data.masking": "whole_word", "objective.kind": "mlm"},
        "spans": {"data.masking": "span", "objective.kind": "mlm"},
        "spans-sbo": {"data.masking": "span", "objective.kind": "mlm_sbo"},
    }


def test_published_figures_of_single_segments_are_table_sevens() -> None:
    """Table 6 has spans on pairs (85.4), which none of these arms is."""
    found = {arm.name: arm for arm in masking("smoke").arms}
    for name, table, score in (
        ("sub-words", 6, 83.8), ("words", 6, 84.3), ("spans", 7, 86.7), ("spans-sbo", 7, 86.8),
    ):  # fmt: skip
        assert found[name].published["SQuAD 2.0 F1"] == score
        assert f"table {table}" in found[name].source

import pytest

from pipeline.experiments.arms import SCALES
from pipeline.experiments.tables.electra import objective
from tests.pipeline.experiments.differences import values


@pytest.mark.parametrize("scale", SCALES)
def test_arms_differ_only_in_the_objective_with_the_scores_of_their_columns(scale: str) -> None:
    kinds = {
        "electra": "rtd", "all-tokens-mlm": "all_tokens_mlm", "replace-mlm": "replace_mlm",
        "electra-15": "rtd_masked", "bert": "mlm",
    }  # fmt: skip
    expected = {arm: {"objective.kind": kind} for arm, kind in kinds.items()}
    assert values(objective(scale)) == expected
    found = {arm.source.partition("column ")[2]: arm.published for arm in objective("smoke").arms}
    assert found["BERT"] == {"GLUE score": 82.2}
    assert found["ELECTRA"] == {"GLUE score": 85.0}
    assert found["ELECTRA 15%"] == found["Replace MLM"] == {"GLUE score": 82.4}
    assert found["All-Tokens MLM"] == {"GLUE score": 84.3}

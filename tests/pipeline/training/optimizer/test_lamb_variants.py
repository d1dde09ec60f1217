"""Trust ratios by hand; test_optimizer.py compares whole steps with each formula."""

from typing import get_args, get_type_hints

import pytest

from pipeline.base.errors import ConfigError
from pipeline.config.settings import override
from pipeline.config.training_settings import OptimizerSettings
from pipeline.recipes import recipe
from pipeline.training.optimizer.lamb_variants import VARIANTS
from tests.pipeline.training.formulas import FORMULAS


def test_every_variant_has_a_rule_and_a_reference() -> None:
    choices = get_args(get_type_hints(OptimizerSettings)["lamb_variant"])
    assert set(choices) == set(VARIANTS) == set(FORMULAS) - {"adamw", "uncorrected", "stable_adamw"}


def test_trust_ratio() -> None:
    for name, rule in VARIANTS.items():
        assert rule.trust_ratio(6.0, 2.0) == 3.0
        assert rule.trust_ratio(0.0, 2.0) == rule.trust_ratio(6.0, 0.0) == 1.0
        limited = name == "deepspeed"
        assert rule.trust_ratio(100.0, 1.0) == (10.0 if limited else 100.0)
        assert rule.trust_ratio(1.0, 1000.0) == (0.01 if limited else 0.001)


@pytest.mark.parametrize(
    ("variant", "refused", "remedy"),
    [
        ("paper", "bias_correction=false", r"lamb_variant=albert for LAMB"),
        ("albert", "bias_correction=false", r"lamb_variant=albert for LAMB"),
        ("nvlamb", "adapt_vectors=false", r"adapt_vectors=true, or"),
        ("deepspeed", "adapt_vectors=false", r"adapt_vectors=true, or"),
    ],
)
def test_a_setting_against_a_variant_is_refused(variant: str, refused: str, remedy: str) -> None:
    """LAMB is corrected, and adapts vectors, as its variant says."""
    run, chosen = recipe("roberta_base"), [f"optimizer.lamb_variant={variant}"]
    with pytest.raises(ConfigError, match=rf"--set optimizer\.{remedy}"):
        override(run, [*chosen, f"optimizer.{refused}"])
    assert override(run, [*chosen, f"optimizer.{refused}", "optimizer.kind=adamw"])
    assert override(run, [*chosen, f"optimizer.{refused.replace('false', 'true')}"])

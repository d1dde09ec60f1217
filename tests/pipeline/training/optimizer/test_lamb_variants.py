"""The variants' numbers by hand; test_optimizer.py compares whole steps with each formula."""

import math
from dataclasses import replace
from typing import get_args, get_type_hints

import pytest

from pipeline.base.errors import ConfigError
from pipeline.config.settings import override
from pipeline.config.training_settings import OptimizerSettings
from pipeline.recipes import recipe
from pipeline.training.optimizer.lamb_variants import ADAMW, UNCORRECTED_ADAMW, VARIANTS, rule_of
from tests.pipeline.training.formulas import FORMULAS

SETTINGS = recipe("roberta_base").optimizer


def test_every_choice_has_a_rule_and_a_reference() -> None:
    choices = get_args(get_type_hints(OptimizerSettings)["lamb_variant"])
    assert set(choices) == set(VARIANTS) == set(FORMULAS) - {"adamw", "uncorrected", "stable_adamw"}
    assert rule_of(replace(SETTINGS, kind="adamw")) is ADAMW
    assert rule_of(replace(SETTINGS, kind="stable_adamw")) is ADAMW
    plain = replace(SETTINGS, kind="adamw", bias_correction=False)
    assert rule_of(plain) is UNCORRECTED_ADAMW
    assert rule_of(replace(SETTINGS, lamb_variant="albert")) is VARIANTS["albert"]


@pytest.mark.parametrize(
    "variant,corrections,factor",
    [
        ("paper", (1 - 0.9**10, 1 - 0.999**10), 1.0),
        ("nvlamb", (1 - 0.9**10, 1 - 0.999**10), 1.0),
        ("albert", (1.0, 1.0), 1.0),
        ("deepspeed", (1.0, 1.0), math.sqrt(1 - 0.999**10) / (1 - 0.9**10)),
    ],
)
def test_bias_corrections(variant: str, corrections: tuple[float, float], factor: float) -> None:
    rule = VARIANTS[variant]
    adam = rule.adam_step(SETTINGS, 10, 1.0)
    assert (adam.correction1, adam.correction2) == pytest.approx(corrections)
    assert rule.rate(2.0, adam, 10) == pytest.approx(2 * factor)
    no_average = rule.adam_step(replace(SETTINGS, beta1=0.0, beta2=0.0), 1, 1.0)
    assert (no_average.correction1, no_average.correction2) == (1.0, 1.0)


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

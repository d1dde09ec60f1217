"""The variants' numbers by hand; test_optimizer.py compares whole steps with each formula."""

from __future__ import annotations

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
def test_where_the_bias_is_corrected(
    variant: str, corrections: tuple[float, float], factor: float
) -> None:
    rule = VARIANTS[variant]
    adam = rule.adam_step(SETTINGS, 10, 1.0)
    assert (adam.correction1, adam.correction2) == pytest.approx(corrections)
    assert rule.rate(2.0, adam, 10) == pytest.approx(2 * factor)


def test_no_average_needs_no_correction() -> None:
    adam = VARIANTS["albert"].adam_step(replace(SETTINGS, beta1=0.0, beta2=0.0), 1, 1.0)
    assert (adam.correction1, adam.correction2) == (1.0, 1.0)


def test_trust_ratio() -> None:
    for name, rule in VARIANTS.items():
        assert rule.trust_ratio(6.0, 2.0) == 3.0
        assert rule.trust_ratio(0.0, 2.0) == rule.trust_ratio(6.0, 0.0) == 1.0
        limited = name == "deepspeed"
        assert rule.trust_ratio(100.0, 1.0) == (10.0 if limited else 100.0)
        assert rule.trust_ratio(1.0, 1000.0) == (0.01 if limited else 0.001)


def test_updates_without_bias_correction_are_larger_at_first() -> None:
    """For a constant gradient: m' / sqrt(v') relative to 1, as measured against Google's code."""
    ratios = {}
    for step in (10, 100, 1_000):
        adam = ADAMW.adam_step(replace(SETTINGS, beta1=0.9, beta2=0.999), step, 1.0)
        ratios[step] = adam.correction1 / math.sqrt(adam.correction2)
    assert ratios == pytest.approx({10: 6.53, 100: 3.24, 1_000: 1.26}, rel=0.01)


@pytest.mark.parametrize("variant", ["paper", "albert"])
def test_lamb_is_corrected_as_its_variant_says(variant: str) -> None:
    run = recipe("roberta_base")
    chosen = [f"optimizer.lamb_variant={variant}", "optimizer.bias_correction=false"]
    with pytest.raises(ConfigError, match=r"--set optimizer\.lamb_variant=albert for LAMB"):
        override(run, chosen)
    assert override(run, [*chosen, "optimizer.kind=adamw"])


@pytest.mark.parametrize("variant", ["nvlamb", "deepspeed"])
def test_variants_that_adapt_everything_say_so(variant: str) -> None:
    run, chosen = recipe("roberta_base"), f"optimizer.lamb_variant={variant}"
    with pytest.raises(ConfigError, match=r"--set optimizer\.adapt_vectors=true, or"):
        override(run, [chosen])
    assert override(run, [chosen, "optimizer.adapt_vectors=true"])
    assert override(run, [chosen, "optimizer.kind=adamw"])

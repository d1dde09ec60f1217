"""Learning rates and batches by literal example."""

from itertools import accumulate

import pytest

from pipeline.base.errors import ConfigError
from pipeline.config.run import Run
from pipeline.config.settings import override
from pipeline.loading.order import Share
from pipeline.planning.schedule import (
    batch_advice,
    check_warm_ups,
    growth,
    learning_rate,
    sequences_until,
)
from pipeline.recipes import recipe
from tests.remedies import alternatives


def run(*settings: str) -> Run:
    """Six steps, of which two warm up to a peak of 1."""
    usual = "steps=6", "optimizer.peak_lr=1", "schedule.warmup_steps=2", "schedule.end_lr=0"
    return override(recipe("roberta_tiny"), [*usual, *" ".join(settings).split()])


POLYNOMIAL = "schedule.kind=polynomial schedule.power"
ROOT = "schedule.decay_shape=one_minus_sqrt"
STABLE = "schedule.kind=warmup_stable_decay schedule.decay_steps"


def test_rates_of_every_kind() -> None:
    for settings, expected in (
        ("", [0.5, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0]),
        ("schedule.end_lr=0.2", [0.5, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2]),
        ("schedule.warmup_steps=0 steps=4", [0.75, 0.5, 0.25, 0.0]),
        ("schedule.warmup_steps=4 steps=4", [0.25, 0.5, 0.75, 1.0, 0.0]),
        ("schedule.warmup_steps=8 steps=4", [0.125, 0.25, 0.375, 0.5]),
        ("schedule.kind=constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
        (f"{POLYNOMIAL}=2", [0.5, 1.0, 0.5625, 0.25, 0.0625, 0.0, 0.0]),
        (f"{POLYNOMIAL}=0.5 schedule.end_lr=0.2", [0.5, 1.0, 0.8928, 0.7657, 0.6, 0.2, 0.2]),
        ("schedule.kind=inverse_sqrt", [0.5, 1.0, 0.8165, 0.7071, 0.6325, 0.5774, 0.5774]),
        ("schedule.kind=inverse_sqrt schedule.end_lr=0.7", [0.5, 1, 0.8165, 0.7071, 0.7, 0.7, 0.7]),
        (f"{STABLE}=2", [0.5, 1.0, 1.0, 1.0, 0.5, 0.0, 0.0]),
        ("schedule.kind=cosine", [0.5, 1.0, 0.8536, 0.5, 0.1464, 0.0, 0.0]),
        ("schedule.kind=cosine schedule.end_lr=0.2", [0.5, 1.0, 0.8828, 0.6, 0.3172, 0.2, 0.2]),
        (f"{STABLE}=4 {ROOT}", [0.5, 1.0, 0.5, 0.2929, 0.134, 0.0, 0.0]),
        (
            f"{STABLE}=4 {ROOT} schedule.end_lr=0.2 schedule.power=7",
            [0.5, 1.0, 0.6, 0.4343, 0.3072, 0.2, 0.2],
        ),
        (f"{STABLE}=4 schedule.power=2 schedule.end_lr=0.2", [0.5, 1.0, 0.65, 0.4, 0.25, 0.2, 0.2]),
    ):
        rates = [learning_rate(run(settings), step) for step in range(1, len(expected) + 1)]
        assert rates == pytest.approx(expected, abs=1e-4)


def google_rate(kind: str, peak: float, step: int, steps: int, warmup: int) -> float:
    """create_optimizer of google-research/bert and of electra; step: TensorFlow's global step."""
    decayed = peak * (1 - min(step, steps) / steps)  # polynomial_decay, power 1, end 0
    if kind == "bert":
        is_warmup = float(step < warmup)
        return (1 - is_warmup) * decayed + is_warmup * peak * step / warmup
    return decayed * min(1.0, step / warmup)


def test_google_decays_from_the_first_step() -> None:
    """Update number s is made at the global step s - 1; the last rate is above 0, and is kept."""
    for kind, name in (("linear_from_start", "bert"), ("linear_times_warmup", "electra")):
        chosen = run(f"steps=1000 schedule.warmup_steps=100 schedule.kind={kind}")
        ours = [learning_rate(chosen, step) for step in range(1, 1_001)]
        assert ours == pytest.approx([google_rate(name, 1.0, n, 1_000, 100) for n in range(1_000)])
        assert learning_rate(chosen, 2_000) == ours[-1] == pytest.approx(0.001)
        floor = override(chosen, ["schedule.warmup_steps=0", "schedule.end_lr=0.5"])
        assert learning_rate(floor, 1) == 1.0 and learning_rate(floor, 501) == pytest.approx(0.75)


def test_the_published_schedules_are_those_of_the_code() -> None:
    """At the peak of BERT's, 1 % below it; ours is linear from the peak."""
    bert, electra = recipe("bert_base_published"), recipe("electra_base_published")
    assert learning_rate(bert, 10_000) == pytest.approx(1e-4 * 9_999 / 10_000)
    assert learning_rate(bert, 10_001) == pytest.approx(0.99e-4)
    assert learning_rate(electra, 5_001) == pytest.approx(2e-4 * 0.5 * (1 - 5_000 / 766_000))
    albert = recipe("albert_base_v1_published")
    assert learning_rate(albert, 3_126) == pytest.approx(1.76e-3 * (1 - 3_125 / 125_000))
    linear = override(albert, ["schedule.kind=linear"])
    ratio = learning_rate(linear, 3_126) / learning_rate(albert, 3_126)
    assert ratio == pytest.approx(1.026, abs=1e-3)
    for name in ("roberta", "spanbert"):
        assert recipe(f"{name}_base_published").schedule.kind == "linear"


def test_a_batch_that_grows() -> None:
    for first, warmup_steps, sizes in (
        (4, 6, [4, 4, 8, 8, 12, 12, 16, 16]),
        (4, 2, [4, 8, 16, 16, 16, 16, 16, 16]),
        (5, 6, [5, 5, 10, 10, 15, 15, 16, 16]),
        (16, 6, [16] * 8),
        (4, 0, [16] * 8),
    ):
        growing = f"batch.warmup_steps={warmup_steps} batch.first_sequences={first}"
        batch = run("steps=9 batch.sequences=16", growing).batch
        share = Share(sequences=16, per_device=16, growth=growth(batch))
        assert [share.sequences_of(step) for step in range(8)] == sizes
        assert [sequences_until(batch, steps) for steps in range(9)] == [0, *accumulate(sizes)]


@pytest.mark.parametrize("owner", ["schedule", "batch"])
def test_a_warm_up_that_the_run_ends_in_is_refused(owner: str) -> None:
    base = override(recipe("roberta_tiny"), ["steps=60", "schedule.warmup_steps=0"])
    check_warm_ups(override(base, [f"{owner}.warmup_steps=60"]))
    long = override(base, [f"{owner}.warmup_steps=100"])
    with pytest.raises(
        ConfigError, match=rf"^arm a: {owner}\.warmup_steps=100 .* steps=60"
    ) as error:
        check_warm_ups(long, "arm a: ")
    for remedy in alternatives(str(error.value)):
        check_warm_ups(override(long, remedy))


def test_traps_29_a_changed_batch_with_an_unchanged_rate_is_reported() -> None:
    base = recipe("roberta_base")
    small = override(base, ["batch.sequences=2048"])
    assert "try optimizer.peak_lr=0.00125 with the same" in batch_advice(base, small)
    tuned = override(small, ["optimizer.peak_lr=1e-3"])
    assert batch_advice(base, base) == batch_advice(base, tuned) == ""

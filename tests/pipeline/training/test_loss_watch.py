"""Spikes do not depend on when losses are exchanged, and plain numpy finds the same ones."""

import math
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
import torch

from pipeline.recipes import recipe
from pipeline.training.loss_watch import LossWatch, Spike

CPU = torch.device("cpu")
SETTINGS = replace(recipe("roberta_tiny").spikes, deviations=6.0, window=20)
PREDICTIONS = 100
RANKS = 3


STARTS = (0, 100, 149)
"""Steps made before each phase; the first loss of the last phase is not finite."""


def losses(phases: bool = False) -> list[float]:
    """phases: whether the loss jumps where a phase starts."""
    rng = np.random.default_rng(0)
    curve = 3 + 4 * np.exp(-np.arange(200) / 12) + rng.normal(0, 0.05, 200)
    curve[[50, 51, 120]] += 1.5
    curve[10] += 5  # among the first `window`: nothing to compare it with
    curve[150] = math.nan
    curve[151] = 1e300  # treated as not finite
    if phases:
        curve[100:] += 2
        curve[149] = math.nan
        curve[150:] -= 1
        curve[180] += 1.5
    return [float(loss) for loss in curve]


def expected(deviations: float = 6.0, phases: bool = False) -> list[int]:
    """Steps with a spike, by the definition."""
    recent: list[float] = []
    found = []
    for step, loss in enumerate(losses(phases), 1):
        if phases and step - 1 in STARTS:
            recent = []
        if not loss < 1e9:
            continue
        if len(recent) >= 20:
            last = np.array(recent[-20:])
            spread = 1.4826 * np.median(np.abs(last - np.median(last)))
            found += [step] if loss > np.median(last) + deviations * spread else []
        recent.append(loss)
    return found


def watched(early: set[int], phases: bool = False) -> tuple[list[int], list[float]]:
    """Spikes found by ranks that log or save at the steps `early`, and the losses they remember.

    Every rank has a different share of each loss.
    """
    shares = [0.5, 0.2, 0.3]
    watches = [LossWatch(SETTINGS, CPU, (), STARTS if phases else ()) for _ in shares]
    travelling: deque[int] = deque([sum(watch.send() for watch in watches)])
    found: list[list[Spike | None]] = [[] for _ in shares]
    for step, loss in enumerate(losses(phases), 1):
        total = travelling.popleft()
        for watch, own in zip(watches, found):
            own.append(watch.receive(total))
        for watch, share in zip(watches, shares):
            watch.copy(torch.tensor(share * loss * PREDICTIONS))
        travelling.append(sum(watch.send() for watch in watches))
        for watch in watches:
            watch.record(step, PREDICTIONS)
        while step in early:
            totals = [sum(own) for own in zip(*(watch.unjudged() for watch in watches))]
            spikes = [watch.judge(totals) for watch in watches]
            for own, spike in zip(found, spikes):
                own.append(spike)
            if spikes[0] is None:
                assert not watches[0].unjudged()
                break
    assert len({tuple(watch.recent) for watch in watches}) == 1
    steps = [[spike.step for spike in own if spike] for own in found]
    assert steps[0] == steps[1] == steps[2]
    return steps[0], list(watches[0].recent)


def test_spikes_are_those_of_the_definition_whenever_a_loss_is_judged() -> None:
    """A phase is compared with itself, also if its first loss is not finite."""
    assert {51, 52, 121} <= set(expected()) and not {11, 151} & set(expected())
    steps, recent = watched(set())
    assert steps == expected()
    assert recent == pytest.approx(losses()[-22:-2], abs=1e-4)  # the last two are not judged yet
    _, last = watched({200})
    for every in (1, 2, 3, 7, 200):
        early = set(range(every, 201, every)) | {200}
        assert watched(early) == (expected(), last)
        steps, recent = watched(early, phases=True)
        assert steps == expected(phases=True)
        assert {121, 181} <= set(steps) and not {101, 151} & set(steps)
        assert recent == pytest.approx(losses(phases=True)[-20:], abs=1e-4)


def test_a_flat_curve_is_not_made_of_spikes() -> None:
    watch = LossWatch(SETTINGS, CPU, [2.0] * 20)
    found = []
    for step, loss in enumerate([2.0, 2.001, 2.005, 2.02], 1):
        watch.copy(torch.tensor(loss * PREDICTIONS, dtype=torch.float64))
        watch.record(step, PREDICTIONS)
        found.append(watch.judge(watch.unjudged()))
    assert [bool(spike) for spike in found] == [False, False, False, True]
    assert str(found[3]).startswith(
        "the loss of step 4 is 2.02, 10.0 deviations above the median 2 "
    )


def test_turned_off_it_stores_nothing() -> None:
    watch = LossWatch(replace(SETTINGS, deviations=0.0), CPU)
    watch.copy(torch.tensor(1.0))
    watch.record(1, PREDICTIONS)
    assert watch.send() == 0 and watch.receive(0) is None
    assert watch.unjudged() == [] and not watch.recent


def test_undone_steps_are_forgotten() -> None:
    watch = LossWatch(SETTINGS, CPU, [2.0] * 20)
    watch.copy(torch.tensor(900.0))
    watch.record(1, PREDICTIONS)
    watch.reset([1.0] * 3)
    assert watch.unjudged() == [] and watch.send() == 0
    assert watch.receive(0) is None and list(watch.recent) == [1.0] * 3

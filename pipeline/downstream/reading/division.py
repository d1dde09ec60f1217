"""One file -> training and development examples, drawn by a fixed seed.

1. A unit is a group (an article, a passage, a value of --group), or an example without one.
2. Units are visited in random order. One goes to development if that brings the counts there, of
   examples and of each label, nearer to the share of those visited so far. For single examples
   this is stratified sampling to within one example of each label; groups are balanced as far as
   their sizes allow.
3. The last unit with a label stays in training: what is never trained cannot be predicted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from pipeline.downstream.reading.examples import Answer, Example

DIVISION_SEED = 0
"""Seed of the random order. It is not an option, nor the seed of a fine-tuning: all seeds, models
and parts of a job must be scored on the same examples."""
BINS = 10
"""Ranges of numbers, with equally many examples, that count as labels."""


def divide_examples(
    examples: Sequence[Example], share: float
) -> tuple[list[Example], list[Example]]:
    """Training examples and about a share of development examples, both in the file's order.

    Either may be empty if the file has too few groups or labels.
    """
    strata = _strata(examples)
    units: dict[Hashable, list[int]] = {}
    for index, example in enumerate(examples):
        units.setdefault(example.group or index, []).append(index)  # 1.
    # 2.
    order = np.random.default_rng(DIVISION_SEED).permutation(len(units)).tolist()
    members = list(units.values())
    counts = [_count(strata, members[unit]) for unit in order]
    chosen = _choose(counts, share)
    held = {index for place in chosen for index in members[order[place]]}
    parts: tuple[list[Example], list[Example]] = [], []
    for index, example in enumerate(examples):
        parts[index in held].append(example)
    return parts


def _choose(counts: Sequence[Mapping[Hashable, int]], share: float) -> list[int]:
    """Indices of the units that go to development; counts: labels of units in random order."""
    left: defaultdict[Hashable, int] = defaultdict(int)
    for count in counts:
        for label, number in count.items():
            left[label] += number
    seen: defaultdict[Hashable, int] = defaultdict(int)
    held: defaultdict[Hashable, int] = defaultdict(int)
    chosen: list[int] = []
    best: tuple[float, int] | None = None
    for place, count in enumerate(counts):
        gain, is_last = 0.0, False
        for label, number in count.items():
            seen[label] += number
            # by how much (share * seen - held)^2 falls if the unit is held out
            gain += number * (2 * (share * seen[label] - held[label]) - number)
            is_last |= left[label] == number  # 3.
        if is_last:
            continue
        if gain > 0:
            chosen.append(place)
            for label, number in count.items():
                held[label] += number
                left[label] -= number
        elif best is None or gain > best[0]:
            best = gain, place
    if not chosen and best:  # all groups are larger than the share
        return [best[1]]
    return chosen


def _count(strata: Sequence[frozenset[Hashable]], unit: Sequence[int]) -> dict[Hashable, int]:
    """Examples of a unit with each label, and all of them, under None."""
    count: dict[Hashable, int] = {None: len(unit)}
    for index in unit:
        for label in strata[index]:
            count[label] = count.get(label, 0) + 1
    return count


def _strata(examples: Sequence[Example]) -> list[frozenset[Hashable]]:
    """The labels of each example: of a number its bin, of answers whether there are any, of tags
    the distinct ones."""
    numbers = [example.gold for example in examples if isinstance(example.gold, float)]
    # np.quantile refuses an empty list
    edges = np.quantile(numbers or [0.0], np.arange(1, BINS) / BINS)
    found: list[frozenset[Hashable]] = []
    for example in examples:
        gold = example.gold
        if isinstance(gold, float):
            found.append(frozenset([int(np.searchsorted(edges, gold))]))
        elif isinstance(gold, tuple) and all(isinstance(part, Answer) for part in gold):
            found.append(frozenset([bool(gold)]))  # () is a question without an answer
        elif isinstance(gold, tuple):
            found.append(frozenset(gold))
        else:
            found.append(frozenset() if gold is None else frozenset([gold]))
    return found

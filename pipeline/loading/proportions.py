"""Weights of any number of datasets -> how many of the first n samples each of them has.

The count follows from n, so nothing is stored and a seek costs a walk down a binary tree. It is
within half a sample per level of the tree of n times the dataset's share, and no share is too small
to be read: a weight of a millionth has a sample in a million.
"""

from __future__ import annotations

import numpy as np

from pipeline.base.errors import ConfigError
from pipeline.kernels.permutation import IntArray

WHOLE = 1 << 31
"""Samples over which the counts are exact: products of two shares then fit 64 bits."""


def shares_of(weights: tuple[float, ...]) -> IntArray:
    """Samples of each dataset in every `WHOLE`: its share, rounded by the largest remainder.

    Raises ConfigError if a weight is not positive, too small for one sample, or the sum infinite.
    """
    if not all(weight > 0 and np.isfinite(weight) for weight in weights):
        raise ConfigError(f"mixture weights {_some(weights)} must be positive numbers")
    if not np.isfinite(sum(weights)):
        raise ConfigError(f"mixture weights {_some(weights)} have an infinite sum; lower them")
    exact = np.asarray(weights, np.float64) / sum(weights) * WHOLE
    shares = np.floor(exact).astype(np.int64)
    # Stable: ties go to the first dataset on any machine.
    by_remainder = np.argsort(shares - exact, kind="stable")
    shares[by_remainder[: WHOLE - shares.sum()]] += 1
    if shares.min() == 0:
        raise ConfigError(
            f"mixture weight {weights[int(shares.argmin())]:g} of {_some(weights)} is below "
            f"1/{WHOLE} of the whole; raise it or remove that dataset"
        )
    return shares


def _some(weights: tuple[float, ...], most: int = 8) -> str:
    """The first weights of a list that may be long."""
    more = f", ... ({len(weights)} in all)" if len(weights) > most else ""
    return f"[{', '.join(map(str, weights[:most]))}{more}]"


class Proportions:
    """How many of the first n samples of a mixture each dataset has.

    A binary tree has the datasets as leaves. A node that has n samples gives its left child n times
    the child's part of the node's share, rounded, and the right child the rest. Counts therefore
    never fall as n grows, add up to n, and are exact at every multiple of `WHOLE`.
    """

    def __init__(self, shares: IntArray) -> None:
        """shares: from `shares_of` [datasets]."""
        self._datasets = shares.size
        # Leaves of share 0 fill the tree up to a power of two.
        level = np.zeros(1 << (shares.size - 1).bit_length(), np.int64)
        level[: shares.size] = shares
        self._levels = [level]
        """Shares of the nodes: of the leaves, of their parents, and so on up to the root."""
        while self._levels[-1].size > 1:
            self._levels.append(self._levels[-1].reshape(-1, 2).sum(1))

    def counts(self, samples: int) -> IntArray:
        """Samples of each dataset [datasets] among the first `samples`."""
        found = np.array([samples], np.int64)
        for nodes, children in zip(self._levels[:0:-1], self._levels[-2::-1], strict=True):
            whole, left = np.maximum(nodes, 1), children[::2]  # 0: all its leaves are fillers
            # Whole rounds are exact. `rest` and `left` are at most 2^31, so their product fits.
            rounds, rest = np.divmod(found, whole)
            lefts = rounds * left + (rest * left + whole // 2) // whole
            found = np.stack([lefts, found - lefts], 1).reshape(-1)
        return found[: self._datasets]

"""Pages of each site that a file keeps, with a limit per site, estimated from a sample of them.

Which pages are kept depends on all pages of a file. The others than the sampled ones join sites as
in a Pitman-Yor process (Pitman and Yor 1997, "The two-parameter Poisson-Dirichlet distribution"),
in which few sites are large: after n pages of S sites, the next one joins a site that has k of them
with probability (k - d) / (n + t), and a new one with (t + d S) / (n + t). The discount d and the
strength t are those under which the samples are the most likely. With a negative discount and t a
multiple of it, -d m, the file has m sites, which are the more alike in size the larger -d is.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np

_DISCOUNTS = [step / 20 for step in range(20)]
_STRENGTHS = [10.0 ** (step / 4) for step in range(-4, 25)]
_LIKENESS = [4.0**step for step in range(-1, 5)]
"""Negative discounts."""
_MORE_SITES = [1.1**step for step in range(1, 60)]
"""Numbers of sites, relative to the sample with the most."""
_DRAWS = 400
"""Draws of a site's number of pages: their mean errs by a few per cent."""


def kept_shares(files: list[tuple[list[str], float]], most: int) -> list[dict[str, float]]:
    """For each file, the expected share of a site's pages that are kept, by site.

    files: the sites of the pages that were sampled of a file, one for each page, and how many pages
    the whole file has; most: pages that a file keeps of a site.
    """
    counts = [Counter(sites) for sites, _ in files]
    discount, strength = _fit([[*found.values()] for found in counts])
    rng = np.random.default_rng(0)  # fixed, so that a dry run repeats its numbers
    shares = []
    for found, (sites, pages) in zip(counts, files):
        others = max(0, round(pages) - len(sites))
        by_count = {}  # sites with as many pages in the sample have the same share
        for count in sorted({*found.values()}):
            rest = len(sites) - count + strength + discount
            # Given the sample, a site's share of all further pages is Beta(k - d, n - k + t + d).
            joining = rng.binomial(others, rng.beta(count - discount, rest, _DRAWS))
            by_count[count] = float(np.minimum(1.0, most / (count + joining)).mean())
        shares.append({site: by_count[count] for site, count in found.items()})
    return shares


def _fit(samples: list[list[int]]) -> tuple[float, float]:
    """The discount and the strength; samples: pages by site, for each file."""
    most = max(map(len, samples), default=0)
    finite = ((-like, like * most * more) for like in _LIKENESS for more in _MORE_SITES)
    return max(
        itertools.chain(itertools.product(_DISCOUNTS, _STRENGTHS), finite),
        key=lambda fit: sum(_log_likelihood(sizes, *fit) for sizes in samples if sizes),
    )


def _log_likelihood(sizes: list[int], discount: float, strength: float) -> float:
    """Log-likelihood of a sample's partition into sites of these sizes."""
    new = len(sizes) - 1
    if discount < 0:
        sites = strength / -discount
        # (t + d)(t + 2d)...(t + (S-1)d), of the sites after the first: (-d)^(S-1) (m-1)!/(m-S)!.
        first = new * math.log(-discount) + math.lgamma(sites) - math.lgamma(sites - new)
    elif discount:
        ratio = strength / discount
        first = new * math.log(discount) + math.lgamma(ratio + new + 1) - math.lgamma(ratio + 1)
    else:
        first = new * math.log(strength)  # t^(S-1), the limit for d = 0
    # (1 - d)(2 - d)...(k - 1 - d), of the pages after the first of each site.
    within = sum(
        times * (math.lgamma(size - discount) - math.lgamma(1 - discount))
        for size, times in Counter(sizes).items()
    )
    # All of it over (t + 1)...(t + n - 1).
    return first + within + math.lgamma(strength + 1) - math.lgamma(strength + sum(sizes))

"""Small compiled functions that other packages share: bits, addresses, a keyed permutation."""

import pipeline.kernels.cache  # noqa: F401  before any kernel is defined

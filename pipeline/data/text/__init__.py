"""Records of raw text -> batches of clean documents."""

import pipeline.kernels.cache  # noqa: F401  before any kernel is defined

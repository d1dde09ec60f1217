"""Raw text to shards, one folder a stage; needs no torch."""

import pipeline.kernels.cache  # noqa: F401  before any kernel is defined

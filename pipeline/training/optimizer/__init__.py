"""Losses come in, exact updates under ZeRO go out: engine, fragments, LAMB, AdamW, StableAdamW."""

import pipeline.kernels.cache  # noqa: F401  before any kernel is defined

"""Gradients come in, exact LAMB and AdamW updates under ZeRO go out."""

import pipeline.kernel_cache  # noqa: F401  before any kernel is defined

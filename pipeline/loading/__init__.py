"""Shards come in, micro-batches of tensors go out; torch begins here."""

import pipeline.kernel_cache  # noqa: F401  before any kernel is defined

"""Shards come in, micro-batches of tensors go out; this is the first stage that uses torch."""

import pipeline.kernels.cache  # noqa: F401  before any kernel is defined

"""Shards -> a trained model: plan, DeepSpeed engine, optimizer, loop, checkpoints, metrics."""

import pipeline.kernel_cache  # noqa: F401  before any kernel is defined

"""Shards -> a trained model: plan, DeepSpeed engine, optimizer, loop, checkpoints, metrics."""

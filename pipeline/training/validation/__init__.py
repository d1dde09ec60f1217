"""Held-out shards and a model come in, losses and accuracies go out."""

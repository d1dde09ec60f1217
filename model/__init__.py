"""The network for one device: encoder, heads and objectives; it knows nothing of ranks."""

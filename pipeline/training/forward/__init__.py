"""A micro-batch comes in, sums and counts of its losses go out."""

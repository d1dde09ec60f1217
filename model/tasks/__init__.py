"""Heads of downstream tasks on the encoder, and their names in transformers."""

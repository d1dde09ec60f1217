"""A model and rows or words come in, losses and scores go out; knows ranks, not the trainer."""

"""The state of a run <-> published checkpoints."""

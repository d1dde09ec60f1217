"""The state of a run comes in, published checkpoints go out; and back."""

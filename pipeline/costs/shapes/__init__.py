"""A Run comes in, the sizes of what training it holds go out, from tensors without storage."""

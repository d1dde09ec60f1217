"""How a model comes to its weights: built, initialized, read from a folder or written to one."""

"""A model and its weights: built, initialized, read from a folder, written to one."""

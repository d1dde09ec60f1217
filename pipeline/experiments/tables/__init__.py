"""The name of a paper's table and a scale come in, its arms go out."""

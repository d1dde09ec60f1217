"""Comparisons of training choices: the arms of a paper's table, trained and compared."""

"""A Run and a number of ranks come in, the memory and traffic that they need go out."""

"""Small compiled tools that the other rooms share: bits, addresses, a keyed permutation."""

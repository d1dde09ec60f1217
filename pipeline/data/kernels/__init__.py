"""Small compiled functions that other packages share: bits, addresses, a keyed permutation."""

"""Raw text to shards, one folder per stage; needs no torch."""

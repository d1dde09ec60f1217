"""Raw text to shards, one folder a stage; needs no torch."""

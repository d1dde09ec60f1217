"""Documents, shards, a tokenizer or a run -> what it holds."""

"""Records of raw text come in, batches of clean documents go out."""

"""Records of raw text -> batches of clean documents."""

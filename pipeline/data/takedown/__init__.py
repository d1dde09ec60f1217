"""Shards and ids of documents come in, the same shards without the text of these go out."""

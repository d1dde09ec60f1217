"""Encodings of bytes: which one they are in, whatever is stated."""

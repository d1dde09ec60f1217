"""Clean text comes in, token ids go out; and the training of vocabularies."""

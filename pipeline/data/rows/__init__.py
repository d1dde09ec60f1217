"""Token ids of documents come in, rows and their masks go out."""

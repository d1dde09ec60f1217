"""Records come in, decisions which documents to keep go out: duplicates, filters, test sets."""

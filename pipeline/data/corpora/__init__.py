"""Corpora by name or path: names, folders and URLs come in, `Source` files go out."""

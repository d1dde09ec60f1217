"""Corpora by name or path: names, folders and URLs -> `Source` files."""

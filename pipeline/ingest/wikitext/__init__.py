"""Wikitext: what a reader of the page sees, as plain text."""

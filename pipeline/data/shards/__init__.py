"""Rows, masks and document entries come in, files on disk go out; and back."""

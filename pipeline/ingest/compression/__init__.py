"""Compressed files, whole and in parts."""

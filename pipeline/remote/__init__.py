"""Addresses and names of files that are elsewhere -> whole local copies."""

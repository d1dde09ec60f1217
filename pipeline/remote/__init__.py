"""Addresses and names of remote files -> whole local copies."""

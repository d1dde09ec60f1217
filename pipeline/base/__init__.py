"""Shared by all rooms: errors, files, folders that appear whole, and the ways of commands."""

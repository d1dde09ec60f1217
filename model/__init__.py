"""The network for one device: ids become hidden vectors; it knows nothing of ranks."""

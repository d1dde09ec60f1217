"""Models become folders of transformers, and folders become models."""

"""A folder of a transformers model, or its name on the Hub -> a recipe that continues it."""

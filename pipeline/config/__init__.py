"""A run's settings: recipes and --set come in, one checked `Run` goes out."""

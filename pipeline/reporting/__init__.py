"""Reports of runs, from the files that they wrote, and exports with their model cards."""

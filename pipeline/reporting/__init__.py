"""Reports of runs, from the files that they wrote."""

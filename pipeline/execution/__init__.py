"""Tasks come in, each done once by this machine's workers or MPI ranks."""

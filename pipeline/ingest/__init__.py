"""Names and paths of any files -> documents, as Parquet where they are not JSON lines or tables."""

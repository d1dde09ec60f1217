"""Files that are not JSON lines, Parquet or Arrow -> Parquet files of documents, once."""

"""Slow formats (dumps, WARC, tar, HTML) -> Parquet files of text, once."""

"""Slow formats (dumps, WARC, tar, HTML) come in, Parquet files of text go out, once."""

"""What earlier commands left below $TENFOLD_ROOT comes in, what no shards need goes out."""

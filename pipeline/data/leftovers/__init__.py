"""Files that earlier commands left below $TENFOLD_ROOT come in, those no shards need go out."""

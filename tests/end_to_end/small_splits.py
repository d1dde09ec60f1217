"""`pipeline.prepare` with splits of 8 KB, so that a small corpus has hundreds of them."""

from __future__ import annotations

from pipeline import prepare
from pipeline.data import splits, text_batches
from pipeline.data.ranks import run_together

if __name__ == "__main__":
    splits.SPLIT_BYTES = 1 << 13
    text_batches.BATCH_CHARACTERS = 1 << 11
    run_together(prepare.main)

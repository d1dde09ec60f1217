"""`pipeline.prepare` with small splits, units of extraction, and packs of small files."""

from __future__ import annotations

from pipeline import prepare
from pipeline.execution.mpi import run_together
from pipeline.ingest.extraction import packs, places, units

if __name__ == "__main__":
    prepare.SPLIT_BYTES = 1 << 13
    units.PLAIN_UNIT_BYTES, places.BLOCK_BYTES = 10_000, 2000
    packs.PACK_FILES = 20
    run_together(prepare.main)

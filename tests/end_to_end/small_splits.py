"""`pipeline.prepare` with splits of 8 KB, so that a small corpus has hundreds of them.

Each is a shard, unless the variable SHARD_BYTES says how much text shards have.
"""

import os

from pipeline import prepare
from pipeline.data.text import documents
from pipeline.execution.mpi import run_together

if __name__ == "__main__":
    prepare.SPLIT_BYTES = 1 << 13
    prepare.SHARD_BYTES = int(os.environ.get("SHARD_BYTES", "1"))
    documents.BATCH_CHARACTERS = 1 << 11
    run_together(prepare.main)

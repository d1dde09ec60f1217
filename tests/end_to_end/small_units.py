"""`pipeline.prepare` with small splits and packs of small files.

A shard has about three splits. The markers of all finished work stay in the directory MARKERS.
"""

import os
from contextlib import suppress
from pathlib import Path

from pipeline import prepare
from pipeline.data.preparation import publication
from pipeline.data.shards.manifest import Manifest
from pipeline.execution.mpi import run_together
from pipeline.ingest.extraction import packs

write_manifest = publication.write_manifest


def keep_markers(output: Path, manifest: Manifest, work: Path) -> None:
    kept = Path(os.environ["MARKERS"])
    kept.mkdir(exist_ok=True)
    for marker in work.glob("[ps]*-*.json"):
        with suppress(FileExistsError):
            (kept / marker.name).hardlink_to(marker)
    write_manifest(output, manifest, work)


if __name__ == "__main__":
    vars(publication)["write_manifest"] = keep_markers
    prepare.SPLIT_BYTES, prepare.SHARD_BYTES = 1 << 13, 3 << 13
    packs.PACK_FILES = 20
    run_together(prepare.main)

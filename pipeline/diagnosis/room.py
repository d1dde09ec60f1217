"""Bytes that a run needs: for a checkpoint, and for shards staged on a node's own disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pipeline.base.errors import DataError
from pipeline.config.run import Run
from pipeline.data.shards.manifest import Shard, read_manifest
from pipeline.diagnosis.checks import WARN, Check, judge
from pipeline.loading.staging import staged_bytes

GB = 1e9
_STATE_BYTES = 12
"""Per weight: the weight and two moments in fp32, as checkpoints hold them."""


def checkpoint_bytes(run: Run) -> float:
    """Bytes of one checkpoint at least: the matrices of the embeddings and of the layers."""
    encoder = run.encoder
    width = encoder.width
    layers = 1 if encoder.sharing == "all" else encoder.layers
    layer = 4 * width**2 + 2 * width * encoder.feed_forward
    table = (run.data.vocab_size + encoder.positions) * (encoder.embedding_width or width)
    return float(_STATE_BYTES * (table + layers * layer))


def check_staging(directories: Sequence[Path], stage: Path) -> list[Check]:
    """Whether the rows, and the masks of a pass and the next, fit on the node's disk."""
    found: list[Shard] = []
    for directory in directories:
        try:
            found += read_manifest(directory).of("train")
        except DataError:  # reported with the shards
            continue
    needed = staged_bytes(found)
    place = next(level for level in (stage.absolute(), *stage.absolute().parents) if level.is_dir())
    status = os.statvfs(place)
    free = status.f_bavail * status.f_frsize
    return [
        judge(
            "room for --stage", f"{free / GB:.3g} GB free in {place}",
            WARN if free < needed else "", f"at least {needed / GB:.3g} GB",
            "free some space; without it the rest is read from the shared file system",
        )
    ]  # fmt: skip

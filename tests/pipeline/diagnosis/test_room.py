"""Room for checkpoints and staged shards."""

from __future__ import annotations

from pathlib import Path

from pipeline.data.shards.manifest import read_manifest
from pipeline.diagnosis.room import check_staging, checkpoint_bytes
from pipeline.recipes import recipe


def test_a_checkpoint_has_twelve_bytes_per_weight() -> None:
    """124.6 million weights of RoBERTa base, all but biases and norms, which are 0.2 %."""
    assert 0.99 < checkpoint_bytes(recipe("roberta_base")) / (12 * 124.6e6) <= 1
    assert checkpoint_bytes(recipe("albert_base")) < 12 * 12e6


def test_staging(prepared: Path, tmp_path: Path) -> None:
    (check,) = check_staging([prepared], tmp_path / "not" / "there")
    rows = sum(shard.bytes for shard in read_manifest(prepared).of("train"))
    assert rows > 0 and check.name == "room for --stage" and str(tmp_path) in check.value

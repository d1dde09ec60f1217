"""One corpus in shards of one piece, and in shards of several; a copy of the sample's shards."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.launching.shared import build_once
from tests.pipeline.preparing import SMALL_SPLITS, finish, many_documents, tiny


@pytest.fixture(scope="session")
def apart_and_together(
    tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Path
) -> tuple[Path, Path]:
    """The same splits of 8 KB: each a shard, and up to eight in a shard. Not to be written to."""

    def build(folder: Path) -> None:
        corpus = many_documents(folder / "in.jsonl", 300)
        for name, shard_bytes in (("apart", 1), ("together", 1 << 16)):
            result = finish(
                sys.executable, SMALL_SPLITS, "--corpus", corpus, "--workers", 1,
                *tiny(tiny_tokenizer, folder / name), SHARD_BYTES=str(shard_bytes),
            )  # fmt: skip
            assert result.returncode == 0, result.stderr

    folder = build_once(tmp_path_factory, "pieces", build)
    return folder / "apart", folder / "together"


@pytest.fixture
def copy(prepared: Path, tmp_path: Path) -> Path:
    """`prepared`, to be written into."""
    return Path(shutil.copytree(prepared, tmp_path / "copy"))

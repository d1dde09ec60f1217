"""One corpus in shards of one piece, and in shards of several; prepare and inspect."""

import functools
import shutil
import sys
from pathlib import Path

import pytest

from pipeline import inspect
from tests.launching.shared import build_once
from tests.pipeline.preparing import SMALL_SPLITS, Call, finish, many_documents, tiny


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
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """$TENFOLD_ROOT, which no command has made yet."""
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path / "root"))
    return tmp_path / "root"


@pytest.fixture
def copy(prepared: Path, tmp_path: Path) -> Path:
    """`prepared`, to be written into."""
    return Path(shutil.copytree(prepared, tmp_path / "copy"))


@pytest.fixture
def show(call: Call) -> Call:
    """`pipeline.inspect` in this process; returns what it printed, or its error line."""
    return functools.partial(call, inspect.main, "--workers", 1)

"""What a gate compiled is written and read back whole; run.py --all does it for real."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.benchmarks.gpu_cache import load_cache, save_cache


def test_what_is_saved_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiled: list[Any] = [None, (b"kernels " * 1000, None)]
    loaded: list[bytes] = []
    monkeypatch.setattr(torch.compiler, "save_cache_artifacts", lambda: compiled.pop(0))
    monkeypatch.setattr(torch.compiler, "load_cache_artifacts", loaded.append)
    file = tmp_path / "cache"
    load_cache(file)
    save_cache(file)  # nothing was compiled
    assert not file.exists()
    save_cache(file)
    assert file.stat().st_size < 1000
    load_cache(file)
    assert loaded == [b"kernels " * 1000]

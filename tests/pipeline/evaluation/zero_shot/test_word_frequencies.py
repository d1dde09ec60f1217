from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.ipc
import pytest

from pipeline.evaluation.zero_shot import word_frequencies
from pipeline.evaluation.zero_shot.word_frequencies import count_tokens
from pipeline.loading.dataset import Dataset


def test_tokens_of_training_rows_are_counted(lesson: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = Dataset.open(lesson, "validation", False)
    expected = np.zeros(2048, np.int64)
    for path in sorted((lesson / "rows").glob("train-*.arrow")):
        for row in pyarrow.ipc.open_file(path).read_all()["input_ids"].to_pylist():
            expected += np.bincount(row, minlength=2048)
    assert (count_tokens([dataset], 2048) == expected).all()
    monkeypatch.setattr(word_frequencies, "MOST_TOKENS", 1)
    assert 0 < count_tokens([dataset], 2048).sum() < expected.sum()

"""Near-copies of held-out documents in train: which are found, and which are not."""

import re
from pathlib import Path

import numpy as np
import pytest

from pipeline.data.preparation import held_out_copies
from pipeline.data.preparation.held_out_copies import count_copies, rarity_for, sample_runs
from pipeline.data.shards.manifest import read_manifest
from pipeline.data.text.text_tasks import SplitTask
from pipeline.data.tokenizers.token_ids import Tokens
from pipeline.execution.workers import local_executor
from pipeline.ingest.documents.records import Piece, Source
from tests.pipeline.preparing import Call, Prepare, write_jsonl

RARITY = 3
RNG = np.random.default_rng(0)
DOCUMENTS = [RNG.integers(5, 50_000, 400).astype(np.uint16) for _ in range(20)]
"""Of about 48 sampled runs each."""


def tokens_of(documents: list[np.ndarray]) -> Tokens:
    offsets = np.cumsum([0, *map(len, documents)])
    return Tokens(np.concatenate(documents), offsets, offsets[:-1])


def hashes_of(documents: list[np.ndarray]) -> set[int]:
    return set(sample_runs(tokens_of(documents), RARITY).hashes)


def written(path: Path, documents: list[np.ndarray]) -> Path:
    held_out_copies.write_runs(path, sample_runs(tokens_of(documents), RARITY))
    return path


def test_a_run_is_sampled_wherever_it_is() -> None:
    """The sample of a document is that of its text in any other, and no run crosses documents."""
    alone = [hashes_of([document]) for document in DOCUMENTS]
    assert 30 < np.mean([len(found) for found in alone]) < 70
    together = sample_runs(tokens_of(DOCUMENTS), RARITY)
    parts = np.split(together.hashes, together.documents[1:-1])
    assert [set(part) for part in parts] == alone
    before = RNG.integers(5, 50_000, 90).astype(np.uint16)
    assert alone[0] | alone[1] <= hashes_of([np.concatenate([before, *DOCUMENTS[:2]])])
    short = sample_runs(tokens_of([document[:15] for document in DOCUMENTS]), 1)
    assert not len(short.hashes)
    wide = [document.astype(np.uint32) + 100_000 for document in DOCUMENTS]
    assert hashes_of([np.concatenate(wide)]) >= hashes_of(wide)


def test_documents_with_half_of_their_runs_in_train_are_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the train of any corpus, over all its files; short documents are not checked."""
    changed = [document.copy() for document in DOCUMENTS]
    for document in changed[:5]:
        document[::90] += 1  # a token in 90: four of five runs are the same
    for document in changed[5:10]:
        document[::9] += 1  # no run is the same
    cut = [document[:100] for document in DOCUMENTS[10:15]]  # a quarter of the document
    train = [written(tmp_path / f"{name}.npz", part) for name, part in (
        ("one", changed[:10]), ("two", cut), ("three", [np.append(cut[0], DOCUMENTS[19])]),
    )]  # fmt: skip
    held_out = {
        "a": [written(tmp_path / "a.npz", DOCUMENTS[:10])],
        "b": [written(tmp_path / f"b{n}.npz", [DOCUMENTS[n]]) for n in range(10, 20)],
        "c": [written(tmp_path / "c.npz", [DOCUMENTS[0][:20]])],
    }
    monkeypatch.setattr(held_out_copies, "_FILES", 2)
    assert count_copies(held_out, train, tmp_path / "table.npy", local_executor(1)) == {
        "a": {"checked": 10, "in_train": 5},
        "b": {"checked": 10, "in_train": 1},
        "c": {"checked": 0, "in_train": 0},
    }


def test_the_sample_is_bounded() -> None:
    def task(size: int) -> SplitTask:
        source = Source("c", "/in", "in", size, "text", "", "", "file", "")
        return SplitTask(0, "c", (Piece(source, 0, size, size),))

    assert rarity_for([task(10_000)]) == held_out_copies.LEAST_RARITY
    for size in (50 * 10**9, 160 * 10**9):
        runs = size / 4 / 2 ** rarity_for([task(size // 2), task(size // 2)])
        assert 0.5 <= runs / held_out_copies.MOST_RUNS <= 1


def test_republished_stories_are_reported(tmp_path: Path, make: Prepare, show: Call) -> None:
    words = ["river", "house", "old", "the", "of", "garden", "was", "under", "light", "never"]
    stories = []
    for _ in range(60):
        story = RNG.choice(words, 300)
        stories.append(" ".join(story))
        story[::100] = "changed"
        stories.append(" ".join(story))
    path = write_jsonl(tmp_path / "stories.jsonl", stories)
    said = make("--corpus", "news", "--input", path)
    found = read_manifest(tmp_path / "out").corpora["news"]["held_out_copies"]
    assert found["in_train"] >= 0.7 * found["checked"] > 5  # two copies may both be held out
    warning = r"warning: \d+ of \d+ held-out documents \(\d+\.\d%\) have a near-copy in train"
    assert re.search(f"news: {warning}.*--dedup near", said)
    assert re.search(f"   {warning}", show(tmp_path / "out"))

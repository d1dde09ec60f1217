"""The sample that a tokenizer is trained on: of fixed size, always the same, little read."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.data.text.documents import DocumentCounts
from pipeline.data.text.sample import (
    LEAST_SHARE,
    SampleTask,
    cut_shares,
    sample_texts,
    stored_sample,
)
from pipeline.data.text.text_tasks import cut_tasks
from pipeline.execution.workers import local_executor
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.ingest.documents.records import Source
from pipeline.ingest.documents.sniff import sniff

TEXT = "One sentence of a document that is as long as others. " * 40


def sample_sources() -> list[Source]:
    return corpus_sources("sample", [])[1]


def test_the_sample_has_its_size_and_comes_from_everywhere() -> None:
    counts = DocumentCounts()
    texts = list(sample_texts(sample_sources(), 500_000, counts))
    assert counts.documents == len(texts)
    longest = max(len(text.encode()) for text in texts)
    assert 500_000 <= counts.bytes <= 500_000 + 5 * longest
    assert texts == list(sample_texts(sample_sources(), 500_000, DocumentCounts()))


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_store_the_same_sample(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.data.text.sample._FILE_BYTES", 100_000)
    expected = DocumentCounts()
    texts = list(sample_texts(sample_sources(), 500_000, expected))
    with stored_sample(
        sample_sources(), 500_000, tmp_path / "tokenizer", local_executor(workers)
    ) as (read, counts):
        (folder,) = tmp_path.iterdir()
        tasks = sorted(path.name for path in folder.iterdir())
        assert len(tasks) > 1 and tasks == [SampleTask(n, ()).marker for n in range(len(tasks))]
        assert list(read()) == texts and list(read()) == texts
        assert counts == expected
    assert not any(tmp_path.iterdir())


def big_file(folder: Path, kind: str) -> Source:
    """Two splits of 32 MB."""
    documents = [f"{number} {TEXT}" for number in range(20_000)]
    path = folder / f"big.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"text": documents}), path, compression="none")
    else:
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return sniff(path, path.name, "big")


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_little_more_than_the_sample_is_read(kind: str, tmp_path: Path) -> None:
    """Of 4 MB blocks, 5,000 splits would read 20 GB for a sample of 1 GB."""
    source = big_file(tmp_path, kind)
    splits = len(cut_tasks([source]))
    size = splits * 1_000_000
    assert any(sample_texts([source], 1, DocumentCounts()))  # imports read, too
    before = bytes_read()
    assert sum(map(len, sample_texts([source], size, DocumentCounts()))) >= size
    # the text of Parquet is behind a dictionary of 1 MB
    assert bytes_read() - before < (2 if kind == "jsonl" else 4) * size


def bytes_read() -> int:
    """Bytes that this process has read so far (rchar of proc_pid_io(5))."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_a_small_sample_opens_few_splits(tmp_path: Path) -> None:
    source = big_file(tmp_path, "jsonl")
    tasks = cut_tasks([source], 1 << 20)
    assert len(tasks) > 30
    shares = cut_shares([source], 20 * LEAST_SHARE)
    assert len(shares) == len(cut_tasks([source]))
    for share in shares:
        assert sum(len(text) for text in share.texts(DocumentCounts())) >= share.size
    (one,) = cut_shares([source], LEAST_SHARE)
    assert one.size == LEAST_SHARE and one.task.pieces[0].start == 0

"""The sample that a tokenizer is trained on: of fixed size, always the same, little read."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.data.selection import sample
from pipeline.data.selection.sample import LEAST_SHARE, sample_texts
from pipeline.data.text.documents import DocumentCounts
from pipeline.data.text.text_tasks import cut_tasks
from pipeline.execution.workers import local_executor
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.ingest.documents.records import Source
from pipeline.ingest.documents.sniff import sniff
from tests.pipeline.preparing import write_jsonl

TEXT = "One sentence of a document that is as long as others. " * 40


@pytest.mark.usefixtures("quick_workers")
def test_workers_store_the_same_sample_of_the_right_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample, "_FILE_BYTES", 100_000)
    _, sources = corpus_sources("sample", [])
    some = sample.cut_shares(sources, 2 * LEAST_SHARE)
    assert [share.task.corpus for share in some] == ["articles", "news"]  # of five
    expected = DocumentCounts()
    texts = list(sample_texts(sources, 500_000, expected))
    assert expected.documents == len(texts)
    longest = max(len(text.encode()) for text in texts)
    assert 500_000 <= expected.bytes <= 500_000 + 5 * longest
    target = tmp_path / "tokenizer"
    for executor in map(local_executor, (1, 2)):
        with sample.stored_sample(sources, 500_000, target, executor) as (read, counts):
            (folder,) = tmp_path.iterdir()
            tasks = sorted(path.name for path in folder.iterdir())
            assert len(tasks) > 1
            assert tasks == [sample.SampleTask(n, ()).marker for n in range(len(tasks))]
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
        write_jsonl(path, documents)
    return sniff(path, path.name, "big")


def test_little_more_than_the_sample_is_read(tmp_path: Path) -> None:
    """Of 4 MB blocks, 5,000 splits would read 20 GB for a sample of 1 GB; a small sample opens few
    splits."""
    for kind, most in (("jsonl", 2), ("parquet", 4)):  # whose text is after a dictionary of 1 MB
        source = big_file(tmp_path, kind)
        splits = len(cut_tasks([source]))
        size = splits * 1_000_000
        assert any(sample_texts([source], 1, DocumentCounts()))  # imports read, too
        before = bytes_read()
        assert sum(map(len, sample_texts([source], size, DocumentCounts()))) >= size
        assert bytes_read() - before < most * size
        if kind == "jsonl":
            assert len(cut_tasks([source], 1 << 20)) > 30
            shares = sample.cut_shares([source], 20 * LEAST_SHARE)
            assert len(shares) == splits
            for share in shares:
                assert sum(map(len, share.texts(DocumentCounts()))) >= share.size
            (one,) = sample.cut_shares([source], LEAST_SHARE)
            assert one.size == LEAST_SHARE and one.task.pieces[0].start == 0


def bytes_read() -> int:
    """Bytes that this process has read so far (rchar of proc_pid_io(5))."""
    return int(Path("/proc/self/io").read_text().split()[1])

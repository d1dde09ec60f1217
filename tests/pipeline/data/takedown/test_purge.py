"""The text of documents goes from extracted files; everything else in them stays."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline.data.takedown.purge import PURGED, purge
from pipeline.data.text.documents import DocumentCounts, read_batches
from pipeline.execution.workers import local_executor
from pipeline.ingest.documents.parquet import extraction_content, extraction_mark
from pipeline.ingest.documents.read import cut
from pipeline.ingest.documents.records import Dropped, Record
from pipeline.ingest.documents.sniff import sniff
from pipeline.ingest.extraction import document_tables
from pipeline.ingest.extraction.extract import extract
from tests.pipeline.ingest.files import read_all, sniffed
from tests.pipeline.preparing import Call, Prepare

SEED = 7
LINES = [f"The  secret of number {n}." if n % 9 == 2 else f"Line {n}." for n in range(60)]


@pytest.fixture
def extracted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(document_tables, "GROUP_BYTES", 200)
    (tmp_path / "a.txt").write_text("\n".join(LINES))
    return extract_lines(tmp_path)


def extract_lines(folder: Path) -> Path:
    source = sniff(folder / "a.txt", "mine", "a.txt", plain_text="lines", forced_text=True)
    (made,) = extract([source], folder / "documents", local_executor(1))
    return Path(made.path)


def hashes(path: Path, wanted: str) -> np.ndarray:
    (piece,) = cut(sniffed(path), 1 << 30)
    found = [
        text_hash
        for batch in read_batches((piece,), SEED, DocumentCounts())
        for text_hash, a, b in zip(batch.hashes.tolist(), batch.offsets, batch.offsets[1:])
        if wanted in bytes(batch.buffer[a : b - 1]).decode()
    ]
    return np.array(sorted(found), np.uint64)


def test_only_these_texts_are_gone(extracted: Path, tmp_path: Path) -> None:
    """A purged file is not made again, and other texts change nothing."""
    before, mark = read_all(sniffed(extracted)), extraction_mark(str(extracted))
    wanted, content = hashes(extracted, "secret"), extraction_content(str(extracted))
    assert len(wanted) == 7 and pq.read_metadata(extracted).num_row_groups > 2
    whole = extracted.read_bytes()
    assert purge(extracted, np.array([1, 2], np.uint64), SEED) == 0
    assert purge(extracted, wanted, SEED + 1) == 0
    assert extracted.read_bytes() == whole
    assert purge(extracted, wanted, SEED) == 7
    after = read_all(sniffed(extracted))
    assert [r.id for r in after] == [r.id for r in before]  # type: ignore[union-attr]
    assert [r for r in after if isinstance(r, Record)] == [
        r for r in before if isinstance(r, Record) and "secret" not in r.text
    ]
    assert {r.reason for r in after if isinstance(r, Dropped)} == {PURGED}
    now = extracted.read_bytes()
    assert b"secret" not in now and extraction_mark(str(extracted)) != mark
    assert extraction_content(str(extracted)) == content
    assert purge(extracted, wanted, SEED) == 0
    assert extract_lines(tmp_path) == extracted and extracted.read_bytes() == now


def test_the_command_purges_and_lists(
    make: Prepare, take: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path))
    (tmp_path / "a.txt").write_text("\n".join(LINES))
    make("--corpus", tmp_path / "a.txt", "--plain-text", "lines")
    (extracted,) = (tmp_path / "documents").glob("*.parquet")
    id = f"a.txt@{len(LINES[0]) + len(LINES[1]) + 2}"
    out = take(tmp_path / "out", id, "--purge")
    assert f"{extracted}: 1 documents taken out" in out
    assert f"{extracted}: extracted text" not in out
    text = extracted.read_bytes()
    assert b"number 2." not in text and b"number 11." in text

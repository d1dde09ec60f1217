"""The text of documents goes from extracted files; everything else in them stays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline import prepare, takedown
from pipeline.data.takedown.purge import PURGED, purge
from pipeline.data.text.documents import DocumentCounts, read_batches
from pipeline.execution.workers import local_executor
from pipeline.ingest.documents.parquet import extraction_content, extraction_mark
from pipeline.ingest.documents.read import cut, read
from pipeline.ingest.documents.records import Dropped, Record
from pipeline.ingest.documents.sniff import sniff
from pipeline.ingest.extraction import document_tables
from pipeline.ingest.extraction.extract import extract
from tests.pipeline.preparing import Call, tiny

SEED = 7
LINES = [f"The  secret of number {n}." if n % 9 == 2 else f"Line {n}." for n in range(60)]


@pytest.fixture
def extracted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(document_tables, "GROUP_BYTES", 200)
    raw = tmp_path / "a.txt"
    raw.write_text("\n".join(LINES))
    source = sniff(raw, "mine", "a.txt", plain_text="lines", forced_text=True)
    (made,) = extract([source], tmp_path / "documents", local_executor(1))
    return Path(made.path)


def documents(path: Path) -> list[Record | Dropped]:
    source = sniff(path, "mine", "a.txt")
    return [r for piece in cut(source, 1 << 20) for r in read(piece)]  # type: ignore[misc]


def hashes(path: Path, wanted: str) -> np.ndarray:
    (piece,) = cut(sniff(path, "mine", "a.txt"), 1 << 30)
    found = []
    for batch in read_batches((piece,), SEED, DocumentCounts()):
        texts = [
            bytes(batch.buffer[a : b - 1]).decode()
            for a, b in zip(batch.offsets, batch.offsets[1:])
        ]
        found += [h for h, text in zip(batch.hashes.tolist(), texts) if wanted in text]
    return np.array(sorted(found), np.uint64)


def test_only_these_texts_are_gone(extracted: Path) -> None:
    before, mark = documents(extracted), extraction_mark(str(extracted))
    wanted = hashes(extracted, "secret")
    assert len(wanted) == 7 and pq.read_metadata(extracted).num_row_groups > 2
    content = extraction_content(str(extracted))
    assert purge(extracted, wanted, SEED) == 7
    after = documents(extracted)
    assert [r.id for r in after] == [r.id for r in before]
    assert [r for r in after if isinstance(r, Record)] == [
        r for r in before if isinstance(r, Record) and "secret" not in r.text
    ]
    assert {r.reason for r in after if isinstance(r, Dropped)} == {PURGED}
    assert b"secret" not in extracted.read_bytes()
    assert extraction_mark(str(extracted)) != mark
    assert extraction_content(str(extracted)) == content
    assert purge(extracted, wanted, SEED) == 0


def test_other_texts_change_nothing(extracted: Path) -> None:
    before = extracted.read_bytes()
    assert purge(extracted, np.array([1, 2], np.uint64), SEED) == 0
    assert purge(extracted, hashes(extracted, "secret"), SEED + 1) == 0
    assert extracted.read_bytes() == before


def test_a_purged_file_is_not_made_again(extracted: Path, tmp_path: Path) -> None:
    purge(extracted, hashes(extracted, "secret"), SEED)
    now = extracted.read_bytes()
    source = sniff(tmp_path / "a.txt", "mine", "a.txt", plain_text="lines", forced_text=True)
    (made,) = extract([source], tmp_path / "documents", local_executor(1))
    assert Path(made.path) == extracted and extracted.read_bytes() == now


def test_the_command_purges_and_lists(
    call: Call, tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path))
    (tmp_path / "a.txt").write_text("\n".join(LINES))
    old = tmp_path / "shards"
    arguments = ["--corpus", tmp_path / "a.txt", "--plain-text", "lines", "--workers", 1]
    call(prepare.main, *arguments, *tiny(tiny_tokenizer, old))
    id = f"a.txt@{len(LINES[0]) + len(LINES[1]) + 2}"
    (extracted,) = (tmp_path / "documents").glob("*.parquet")
    out = call(
        takedown.main, "--data", old, "--documents", id, "--output", tmp_path / "new",
        "--workers", 1, "--purge",
    )  # fmt: skip
    assert f"{extracted}: 1 documents taken out" in out
    assert f"{extracted}: extracted text" not in out
    assert b"number 2." not in extracted.read_bytes()
    assert b"number 11." in extracted.read_bytes()

"""Other shards, extracted files and downloads with the same text are listed."""

from pathlib import Path

import numpy as np
import pytest
import xxhash

from pipeline.data.shards.manifest import MANIFEST
from pipeline.data.takedown.remains import find_remains
from pipeline.data.takedown.request import Request
from pipeline.execution.workers import local_executor
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.ingest.extraction.extract import extract
from tests.pipeline.data.letters import id_of, prepare_letters
from tests.pipeline.ingest.files import put
from tests.pipeline.preparing import Call, Prepare


def test_the_other_places_are_listed(
    call: Call, make: Prepare, take: Call, tmp_path: Path, tiny_tokenizer: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    root = tmp_path / "root"
    old = prepare_letters(call, tiny_tokenizer, tmp_path, ["data.duplicates=1"])
    monkeypatch.setenv("TENFOLD_ROOT", str(root))
    given = ("--corpus", tmp_path / "letters.jsonl", "--set", "data.sequence_length=16")
    make(*given, output="root/shards/sixteen")
    for name in ("letters.jsonl-0123.parquet", "other-0123.parquet"):
        put(root / "documents" / name, "")
    put(root / "downloads" / "ab" / "letters.jsonl", "")
    (root / "shards" / "half" / ".work").mkdir(parents=True)
    put(root / "shards" / "torn" / MANIFEST, "{")
    lines = take(old, id_of(old, "c")).splitlines()
    places = lines[lines.index("their text is still in these places:") + 1 : -1]
    assert [line.partition(" (")[0].strip() for line in places] == [
        f"{old}: the shards before this takedown",
        f"{root / 'shards/half/.work'}: unfinished shards, which may hold it",
        f"{root / 'shards/sixteen'}: shards with 1 documents of the same text",
        f"{root / 'shards/torn'}: may hold it",
        f"{root / 'documents/letters.jsonl-0123.parquet'}: extracted text",
        f"{root / 'downloads/ab/letters.jsonl'}: downloaded",
        "the raw input of pipeline.prepare: letters.jsonl",
        f"copies of {old} elsewhere, and models that were trained on it",
    ]


def test_files_of_long_names_are_listed(tmp_path: Path) -> None:
    path = put(tmp_path / f"{'y' * 200}.txt", "A text.")
    _, sources = corpus_sources("mine", [str(path)])
    (made,) = extract(sources, tmp_path / "documents", local_executor(1))
    none = np.array([], np.uint64)
    text = np.array([xxhash.xxh3_64_intdigest(b"A text.", 3)], np.uint64)
    request = Request(frozenset({("mine", f"{path.name}@0")}), none, frozenset(), text)
    assert f"{made.path}: extracted text" in find_remains(tmp_path, tmp_path, tmp_path, request)

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.base.errors import DataError
from pipeline.data.shards.arrow_files import read_table
from pipeline.data.shards.corpus_spans import corpus_spans
from pipeline.data.shards.manifest import read_manifest


def test_shards_have_the_corpora_that_their_rows_name(prepared: Path) -> None:
    """A manifest that lost a corpus is damaged."""
    manifest = read_manifest(prepared)
    for split in ("train", "validation"):
        shards = manifest.of(split)
        spans = corpus_spans(prepared, manifest, shards)
        assert [*spans] == ["articles", "books", "news", "web", "stories"]
        named = {name: {shard.file for shard in shards[span]} for name, span in spans.items()}
        for shard in shards:
            [corpus] = set(read_table(prepared / shard.file)["corpus"].to_pylist())
            assert [name for name, files in named.items() if shard.file in files] == [corpus]
    less = {name: about for name, about in manifest.corpora.items() if name != "news"}
    with pytest.raises(DataError, match="is damaged"):
        corpus_spans(prepared, replace(manifest, corpora=less), manifest.of("train"))


def spans_of(rows: list[int], **corpora: int) -> dict[str, slice]:
    shards: Any = [SimpleNamespace(split="train", sequences=count) for count in rows]
    about = {
        name: {"sequences": count + 3, "validation_sequences": 3} for name, count in corpora.items()
    }
    manifest: Any = SimpleNamespace(corpora=about)
    return corpus_spans(Path("en"), manifest, shards)


def test_a_corpus_has_any_number_of_shards() -> None:
    assert spans_of([5, 5, 2, 7], a=12, b=0, c=7) == {"a": slice(0, 3), "c": slice(3, 4)}
    assert spans_of([4, 1], a=0, b=5, c=0) == {"b": slice(0, 2)}
    for wrong in ({"a": 11, "b": 8}, {"a": 12}, {"a": 12, "b": 8}, {"a": 19, "b": 1}, {}):
        with pytest.raises(DataError, match=r"^en/manifest.json is damaged"):
            spans_of([5, 5, 2, 7], **wrong)

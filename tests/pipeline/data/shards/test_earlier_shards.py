"""`--keep-signatures` and `--against` as commands: what they drop, say and refuse."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pipeline import inspect, prepare
from pipeline.base.errors import ConfigError
from pipeline.data.selection.signature_store import INDEX, SIGNATURES, read_store
from pipeline.data.shards.earlier_shards import read_earlier, signatures_of
from pipeline.data.shards.manifest import read_manifest
from tests.benchmarks.planted import copy_of, document
from tests.pipeline.preparing import Call, contents, tiny, write_jsonl

TINY = ["--dedup", "near", "--workers", 1, "--set", "data.duplicates=1"]


@pytest.fixture
def root(root: Path) -> Path:
    """Texts of two months in april.jsonl and may.jsonl: five of may are near-copies of april's."""
    rng = np.random.default_rng(0)
    april = [document(rng, 60) for _ in range(30)]
    may = [copy_of(words, 0.9, rng) for words in april[:5]] + [document(rng, 60) for _ in range(25)]
    for name, its in (("april", april), ("may", may)):
        write_jsonl(root.with_name(f"{name}.jsonl"), [" ".join(words) for words in its])
    return root


@pytest.fixture
def month(call: Call, root: Path, tiny_tokenizer: Path) -> Call:
    """Prepares a month, to a folder of its name or of another."""

    def month(name: str, *more: object, output: str = "", code: int = 0) -> str:
        place = root / "shards" / (output or name)
        words = ["--corpus", "news", "--input", root.parent / f"{name}.jsonl", *TINY, *more]
        return call(prepare.main, *words, *tiny(tiny_tokenizer, place), code=code)

    return month


def test_a_month_is_added_to_a_corpus(call: Call, month: Call, root: Path) -> None:
    """Decisions are shown with the id in the earlier shards; fingerprints are of content only."""
    april, may = root / "shards" / "april", root / "shards" / "may"
    show = ("--corpus", "news", "--samples", 9, "--decisions")
    assert ", signatures 0.0 MB)" in month("april", "--keep-signatures", "--dry-run")
    said = month("april", "--keep-signatures")
    first = read_manifest(april).fingerprint
    store = root / SIGNATURES / first
    assert f"signatures: 30 documents in {store}\n" in said
    assert signatures_of(read_manifest(april)) == store
    said = month("may", "--against", april, "--keep-signatures")
    assert f"news: dropped 5 near-duplicate of one in shards {first}" in said
    manifest = read_manifest(may)
    assert manifest.totals["documents"] == 25
    assert read_store(root / SIGNATURES / manifest.fingerprint).documents == 25
    shown = call(inspect.main, root.parent / "may.jsonl", *show)
    assert "5 of 30 documents are in 5 clusters of similar documents" in shown
    assert f"kept: shards {first} april.jsonl@0" in shown and "are missing here" not in shown
    (root / SIGNATURES).rename(root / "elsewhere")
    shown = call(inspect.main, root.parent / "may.jsonl", *show)
    assert f"kept: shards {first} of which no signatures are left" in " ".join(shown.split())
    (root / "elsewhere").rename(root / SIGNATURES)
    # april's documents are now in april alone, and may's in may
    said = month("april", "--against", april, may, output="third", code=2)
    assert "all documents of 1 file(s) are dropped" in said
    month("april", output="plain")
    assert read_manifest(root / "shards" / "plain").fingerprint == first
    month("may", output="alone")
    april.rename(root / "moved")
    month("may", "--against", root / "moved", "--keep-signatures", output="again")
    assert read_manifest(root / "shards" / "alone").fingerprint != manifest.fingerprint
    assert contents(root / "shards" / "again") == contents(may)


def test_shards_that_exist_get_only_their_signatures(month: Call, root: Path) -> None:
    april = root / "shards" / "april"
    month("april")
    before = contents(april)
    error = month("may", "--against", april, code=2)
    store = signatures_of(read_manifest(april))
    assert error.startswith(f"error: --against {april}: {store} has no signatures")
    shutil.rmtree(root / "documents")  # by `tenfold clean`
    said = month("april", "--keep-signatures")
    assert "is complete already" in said and f"signatures: 30 documents in {store}" in said
    assert contents(april) == before
    assert "signatures:" not in month("april", "--keep-signatures")
    month("may", "--against", april)


def test_what_is_refused(month: Call, root: Path) -> None:
    april = root / "shards" / "april"
    month("april", "--keep-signatures")
    store = signatures_of(read_manifest(april))
    shutil.copytree(april, root / "copy")
    for words, message in (
        ([april, april], f"--against {april} is named twice"),
        ([april, root / "copy"], f"has the documents of {april}"),
        ([root / "shards" / "may"], f"--against {root / 'shards' / 'may'} is the --output"),
        ([root.parent], "has no manifest.json"),
        ([root / "nothing"], "no such directory"),
    ):
        error = month("may", "--against", *words, code=2)
        assert error.startswith("error: ") and error.count("\n") == 1 and message in error, error
        assert not (root / "shards" / "may").exists()
    index = json.loads((store / INDEX).read_text())
    index["rules"]["unicode"] = "3.0"
    (store / INDEX).write_text(json.dumps(index))
    with pytest.raises(ConfigError, match=r"unicode 3\.0"):
        read_earlier([april])
    assert "unicode 3.0" in month("may", "--against", april, "--dry-run", code=2)

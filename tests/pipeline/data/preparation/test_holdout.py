"""Documents are held out whole, by their text, with their copies, and all of them if you ask."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.base.errors import DataError
from pipeline.data.preparation import holdout
from pipeline.data.preparation.holdout import EVERY_HASH, HoldOut, expected_hold_outs, hold_outs
from pipeline.data.shards.manifest import read_manifest
from pipeline.data.text.text_tasks import cut_tasks
from pipeline.execution.workers import local_executor
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.ingest.extraction.extract import extract
from pipeline.ingest.extraction.packs import FEWEST_FILES
from pipeline.loading.dataset import Dataset
from pipeline.recipes import recipe
from tests.pipeline.data.small_shards import documents_of
from tests.pipeline.preparing import Call, Prepare, contents, write_jsonl


def test_documents_are_held_out_whole_and_from_every_corpus(prepared: Path) -> None:
    for name, corpus in read_manifest(prepared).corpora.items():
        assert 0 < corpus["validation_sequences"] < corpus["sequences"], name
    table, held_out = documents_of(prepared)
    assert len(set(zip(table["corpus"].to_pylist(), table["id"].to_pylist()))) == len(table)
    assert 5 <= held_out.sum() <= len(table) // 4


def test_copies_of_a_document_are_on_one_side(tmp_path: Path, make: Prepare) -> None:
    texts = [f"Text number {i}. It has copies." for i in range(30)] * 3
    make("--corpus", write_jsonl(tmp_path / "copies.jsonl", texts))
    table, held_out = documents_of(tmp_path / "out")
    # ids are name@position, in the order of the file: copy k of text i is document 30 k + i
    order = np.argsort([int(name.split("@")[1]) for name in table["id"].to_pylist()])
    sides = held_out[order].reshape(3, 30)
    assert (sides == sides[0]).all() and 1 <= sides[0].sum() <= 9


def test_validation_never_takes_everything(tmp_path: Path, make: Prepare) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", ["One. A.", "Two. B.", "Three. C."])
    make("--corpus", path, "--set", "data.validation_fraction=0.5")
    manifest = read_manifest(tmp_path / "out")
    assert manifest.of("train") and manifest.of("validation")


@pytest.mark.parametrize("documents", [1, 30])
def test_a_whole_corpus_is_prepared_to_evaluate_on(
    documents: int, tmp_path: Path, make: Prepare, show: Call
) -> None:
    texts = [f"Number {n}. It is short." for n in range(documents)]
    path, out = write_jsonl(tmp_path / "dev.jsonl", texts), tmp_path / "out"
    said = make("--corpus", path, "--set", "data.validation_fraction=1")
    assert f"prepared {documents} documents" in said
    manifest = read_manifest(out)
    rows = sum(shard.sequences for shard in manifest.of("validation"))
    assert not manifest.of("train") and rows == manifest.totals["sequences"] > 0
    but_the_manifest = len(contents(out)) - 1
    assert f"verified: {but_the_manifest} files" in show(out, "--verify")
    with pytest.raises(DataError, match="no train rows"):
        Dataset.open(out)
    assert len(Dataset.open(out, "validation").shards) == 1


def test_the_highest_hash_is_held_out_with_all_others() -> None:
    hashes = np.array([0, 5, 2**64 - 1], np.uint64)
    for threshold, count in ((EVERY_HASH, 3), (2**64 - 1, 2), (5, 1), (0, 0)):
        assert holdout.are_below(hashes, threshold).tolist() == [n < count for n in range(3)]


def about(documents: float, held: float, text: float, held_text: float) -> HoldOut:
    return HoldOut(
        threshold=1, documents=documents, held_documents=held, text=text, held_text=held_text
    )


def test_a_share_far_from_the_fraction_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One.\nTwo.\n")
    _, sources = corpus_sources("web", [str(tmp_path)])
    near, far = about(2000, 10, 1000, 9), about(3, 1, 1000, 331)
    assert not holdout.describe_hold_outs({"news": near, "more": near}, 0.005, sources)
    (said,) = holdout.describe_hold_outs({"news": near, "web": far}, 0.005, sources)
    for part in ("17.0% of the text", "=0.005 asks for 0.5%: web 33.1% (1 of 3", "--plain-text"):
        assert said.startswith("warning: ") and part in said
    (said,) = holdout.describe_hold_outs({f"l{n}": far for n in range(1833)}, 0.005, sources)
    assert "l7 " in said and "l8 " not in said and ", and 1,825 more corpora; documents" in said
    (said,) = holdout.describe_hold_outs({"news": about(1, 0, 9, 0)}, 0.005, sources)
    assert "0.0% of the text" in said and said.endswith("give more or shorter documents")


def test_what_will_be_held_out_is_known_before_the_work(
    tmp_path: Path, make: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A corpus of one split is read; of a larger one, the documents count, as if of one size."""
    texts = [f"Number {n}. " + "It is long. " * (n % 3 * 400) for n in range(40)]
    path = write_jsonl(tmp_path / "in.jsonl", texts)
    said = make("--corpus", path)
    manifest = read_manifest(tmp_path / "out")
    rows = sum(shard.sequences for shard in manifest.of("validation"))
    share = float(said.partition("takes about ")[2].partition("%")[0]) / 100
    assert share == pytest.approx(rows / manifest.totals["sequences"], abs=0.01)
    _, sources = corpus_sources("in", [str(path)])
    data = recipe("roberta_tiny").data
    exact = hold_outs(cut_tasks(sources), data, local_executor(1))
    sizes = {"in": (40.0, float(sum(map(len, texts))))}
    assert expected_hold_outs(sources, sizes, data) == exact
    monkeypatch.setattr(holdout, "SPLIT_BYTES", 1000)
    found = expected_hold_outs(sources, sizes, data)["in"]
    assert (found.held_documents, found.held_text / found.text) == (4, pytest.approx(0.1))
    many = expected_hold_outs(sources, {"in": (1e6, 1e9)}, data)["in"]
    assert many.held_documents == 5000


def test_of_a_large_corpus_the_rest_is_expected(tmp_path: Path) -> None:
    """Reading ends at ten held-out documents; they are not the share of the whole."""
    texts = [f"Number {n}. It is here." for n in range(1000)]
    _, sources = corpus_sources("in", [str(write_jsonl(tmp_path / "in.jsonl", texts * 5))])
    tasks = cut_tasks(sources)
    data = replace(recipe("roberta_tiny").data, validation_fraction=0.1)
    found = hold_outs(tasks, data, local_executor(1))["in"]
    assert found.threshold == int(0.1 * EVERY_HASH)
    assert found.text == sum(task.weight for task in tasks)
    assert found.held_text / found.text == pytest.approx(0.1, rel=0.2)
    assert not holdout.describe_hold_outs({"in": found}, 0.1, sources)


def test_files_in_packs_are_named_if_there_is_no_text(tmp_path: Path) -> None:
    for number in range(FEWEST_FILES):
        (tmp_path / f"{number:02}.jsonl").write_text('{"raw": "Some words."}\n')
    _, sources = corpus_sources("in", [str(tmp_path)])
    packed = extract(sources, tmp_path / "out", local_executor(1))
    assert len(packed) == 1
    with pytest.raises(DataError, match=rf"{FEWEST_FILES} file\(s\): 00[.]jsonl:1: .*--text-field"):
        hold_outs(cut_tasks(packed), recipe("roberta_tiny").data, local_executor(1))

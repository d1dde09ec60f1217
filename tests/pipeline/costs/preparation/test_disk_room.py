"""What is written is compared with the disks before the work, and little room is refused."""

import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import train_tokenizer
from pipeline.base.errors import DataError
from pipeline.base.files import bytes_in
from pipeline.costs.preparation import disk_room
from pipeline.costs.preparation.corpus_estimate import CorpusEstimate, estimate_documents
from pipeline.costs.preparation.disk_room import (
    DiskUse,
    describe_disks,
    disk_use,
    peaks,
    require_fit_on_disks,
    selection_bytes,
    shards_so_far,
)
from pipeline.data.selection.sample import stored_sample
from pipeline.data.selection.select import decide, plan_selection
from pipeline.data.selection.survey import survey_stage
from pipeline.data.shards.shard_assembly import SHARD_BYTES
from pipeline.data.text.text_tasks import cut_tasks
from pipeline.execution.workers import local_executor
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.ingest.extraction.extract import extract
from tests.golden.formats import separated, stories
from tests.pipeline.costs.preparation.test_raw_sample import texts
from tests.pipeline.ingest.web_archive import articles
from tests.pipeline.preparing import Call, Prepare, write_jsonl

SetFree = Callable[[float], None]


@pytest.fixture
def set_free(monkeypatch: pytest.MonkeyPatch) -> SetFree:
    """Sets how many bytes are free on every disk."""
    return lambda size: monkeypatch.setattr(disk_room, "_free", lambda path: int(size))


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path / "root"))
    return tmp_path / "root"


def estimate(extracted: float, disk: float) -> CorpusEstimate:
    return CorpusEstimate(
        documents=1, text=1, tokens=1, sequences=1, disk=disk, seconds=1, extracted=extracted
    )


@pytest.fixture
def news(tmp_path: Path) -> Path:
    path = tmp_path / "news.csv"
    path.write_bytes(separated(stories() * 20, ","))
    return path


def test_the_peak_of_each_disk(tmp_path: Path, set_free: SetFree) -> None:
    """Copies and waiting documents are gone before shards are written."""
    set_free(30e6)
    use = DiskUse(copies=9e6, documents=10e6, waiting=4e6, shards=21e6)
    here, there = tmp_path / "out", Path("/dev/shm/not there")
    assert [(peak.place, peak.needed) for peak in peaks(use, here)] == [(tmp_path, 31e6)]
    assert [(peak.place, peak.needed) for peak in peaks(use, there)] == [
        (tmp_path, 23e6), (there.parent, 21e6)
    ]  # fmt: skip
    require_fit_on_disks(use, there)
    assert describe_disks(use, there, tight=True) == []
    (line,) = describe_disks(use, here)
    parts = "files 9.0 MB, documents 10.0 MB, documents that wait 4.0 MB, shards 21.0 MB)"
    assert line.startswith("disk: about 31.0 MB at the peak (copies of published ")
    assert line.endswith(f"{parts}, 0.03 GB free on the disk of {tmp_path}: not enough")
    said = f"disk of {tmp_path}: .* 31.0 MB .*{re.escape(parts)}, and 30.0 MB"
    with pytest.raises(DataError, match=said):
        require_fit_on_disks(use, here)
    assert not peaks(DiskUse(), here)


def test_documents_wait_in_one_file_for_each_worker(root: Path, tmp_path: Path) -> None:
    for number, size in enumerate((10, 20, 30)):
        (tmp_path / f"{number}.warc").write_bytes(b"".join(articles(size)))
    (tmp_path / "3.csv").write_text("id,text\n1,One file that is written once.\n")
    _, sources = corpus_sources("mine", [str(tmp_path / f"{n}") for n in ("*.warc", "3.csv")])
    size = sum(source.size for source in sources)
    found = [disk_use({"mine": estimate(size / 2, 7)}, sources, workers, 0) for workers in (1, 2)]
    assert [use.documents for use in found] == [size / 2] * 2
    largest = sorted(source.size / 2 for source in sources)[-2:]
    waiting = [use.waiting for use in found]
    assert waiting == [pytest.approx(largest[1]), pytest.approx(sum(largest))]


def test_each_worker_has_a_shard_in_pieces() -> None:
    """At most all shards; pieces that exist are counted first."""
    large = replace(estimate(0, 6e12), text=100 * SHARD_BYTES)
    found = [disk_use({"mine": large}, [], workers, 0).pieces for workers in (1, 5, 1000)]
    assert found == [6e10, 3e11, 6e12]
    for written, shards, pieces in (
        (6.01e12, 0, 5e10), (6e12, 0, 6e10), (5e12, 1e12, 6e10), (math.inf, 0, 0),
    ):  # fmt: skip
        use = disk_use({"mine": large}, [], 1, written)
        assert (use.shards, use.pieces) == (shards, pytest.approx(pieces))
    there = Path("/dev/shm/not there")
    assert [peak.needed for peak in peaks(DiskUse(shards=20e6, pieces=4e6), there)] == [24e6]


@pytest.mark.parametrize(
    ("dedup", "filters"),
    [("near", []), ("none", ["min-words=3"]), pytest.param("exact", [], marks=pytest.mark.slow)],
)
def test_selection_is_estimated(dedup: str, filters: list[str], tmp_path: Path) -> None:
    """And what exists of it takes no more room. Tolerance: 1.5 times."""
    tales = [f"Tale {number} of {number * number} ducks." for number in range(5000)]
    _, sources = corpus_sources("mine", [str(write_jsonl(tmp_path / "tales.jsonl", tales))])
    selection = plan_selection(cut_tasks(sources), dedup, filters, [], tmp_path / "documents")
    known = {"mine": replace(estimate(0, 0), documents=5000, text=200_000)}
    expected = selection_bytes(selection, known)
    surveyed = tmp_path / "documents" / "surveys"
    surveyed.mkdir(parents=True)
    executor = local_executor(1)
    executor.run(survey_stage(surveyed, selection.rules), selection.surveys)
    surveys = bytes_in(tmp_path / "documents")
    assert selection_bytes(selection, known) == max(0, expected - surveys)
    decide(selection, executor)
    made = bytes_in(tmp_path / "documents")
    assert made / 1.5 < expected < 1.5 * made
    assert selection_bytes(selection, known) == 0
    assert selection_bytes(plan_selection([], "none", [], [], tmp_path), known) == 0


@pytest.mark.parametrize("most", [1 << 30, 200_000])
def test_a_tokenizers_sample_is_estimated(most: int, tmp_path: Path, set_free: SetFree) -> None:
    """All of a small corpus, or its share. Tolerance: 1.5 times."""
    (tmp_path / "news.csv").write_bytes(separated(texts(), ","))
    _, sources = corpus_sources("mine", [str(tmp_path / "news.csv")])
    use = disk_use(estimate_documents(sources), sources, 1, 0, most)
    executor = local_executor(1)
    made = extract(sources, tmp_path / "documents", executor)
    with stored_sample(made, most, tmp_path / "sampled" / "tok", executor):
        stored = bytes_in(tmp_path / "sampled")
    assert stored / 1.5 < use.sample < 1.5 * stored
    assert use.shards == 0 and use.documents == pytest.approx(bytes_in(tmp_path / "documents"), 0.5)
    set_free(1e15)  # or it would change meanwhile
    here = replace(use, tokenizer=tmp_path / "tok")
    assert peaks(here, tmp_path / "tok") == peaks(use, tmp_path / "tok")
    there = replace(use, tokenizer=Path("/dev/shm/tok"))
    assert peaks(there, tmp_path)[-1].needed == use.sample


def test_train_tokenizer_refuses_what_does_not_fit(
    news: Path, root: Path, tmp_path: Path, set_free: SetFree, call: Call
) -> None:
    """Before anything is written; with enough room it trains."""
    given = ["--corpus", news, "--vocab-size", 512, "--output", tmp_path / "tok"]
    set_free(600_000)  # less than the documents and the sample
    assert "training a tokenizer" in call(train_tokenizer.main, *given, code=2)
    assert not (tmp_path / "tok").exists() and not root.exists()
    set_free(1_500_000)
    call(train_tokenizer.main, *given)
    assert (tmp_path / "tok" / "tokenizer.json").exists()


def test_shards_that_exist(root: Path) -> None:
    home = root / "shards"
    assert shards_so_far(None, "news", "bert") == (home, 0)
    for name, size in (("news-bert-1", 5), ("news-bert-2", 9), ("news-roberta-3", 99)):
        (home / name / ".work").mkdir(parents=True)
        (home / name / ".work" / "part").write_bytes(b"x" * size)
    assert shards_so_far(None, "news", "bert") == (home / "news-bert-2", 9)
    assert shards_so_far(home / "news-bert-1", "news", "bert") == (home / "news-bert-1", 5)
    (home / "news-bert-1" / "manifest.json").write_text("{}")
    assert shards_so_far(None, "news", "bert") == (home / "news-bert-1", float("inf"))


def test_prepare_refuses_what_does_not_fit_and_nothing_else(
    news: Path, root: Path, tmp_path: Path, set_free: SetFree, make: Prepare
) -> None:
    """Documents and shards that exist take no more room, and what is dropped is not known."""
    documents, output, given = root / "documents", tmp_path / "out", ("--corpus", news)
    set_free(700_000)  # enough for the documents
    error = make(*given, code=2)
    assert error.startswith("error: too little room on the disk of ") and error.count("\n") == 1
    assert "(documents 0.6 MB, shards " in error and ", and 0.7 MB are free; free some" in error
    assert not documents.exists() and not output.exists()
    said = make(*given, "--dry-run")
    assert "not enough" in said and "documents: about 0.6 MB of Parquet, extracted in" in said
    warned = make(*given, "--dedup", "exact", output="other")
    assert "warning: unless enough documents are dropped: disk: about" in warned
    shutil.rmtree(documents / "decisions")
    set_free(1e15)
    make(*given)
    written = bytes_in(output)
    set_free(0)
    assert "complete already" in make(*given)
    shutil.rmtree(output)
    set_free(2.1 * written)  # one shard, in pieces and assembled
    make(*given)

"""`pipeline.prepare --dry-run` prints an estimate and writes nothing."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.base.files import bytes_in
from pipeline.costs.preparation.corpus_estimate import CorpusEstimate
from pipeline.costs.preparation.dry_run import describe_estimate
from pipeline.costs.preparation.stage_time import Work
from pipeline.data.shards.manifest import read_manifest
from tests.pipeline.preparing import Prepare, contents, tiny, write_jsonl


def test_the_command_prints_the_estimate_and_writes_nothing(
    prepared: Path, run: Prepare, tiny_tokenizer: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The sample corpus is small enough to be read whole, so the estimate is exact."""
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path))
    given = ["--corpus", "sample", "--workers", 4, *tiny(tiny_tokenizer, tmp_path / "out")]
    said = run(*given, "--dry-run")
    totals = read_manifest(prepared).totals
    (line,) = re.findall(r"^total:.*", said, re.M)
    words = line.replace(",", "").split()
    assert int(words[words.index("documents") - 1]) == totals["documents"]
    sequences = int(words[words.index("sequences") - 1])
    assert sequences == pytest.approx(totals["sequences"], rel=0.01)
    assert "for 4 workers" in said and "GB free" in said
    pattern = r"^disk: about .* at the peak \(.*, shards ([\d.]+) MB, pieces of shards \1 MB\)"
    (shards,) = re.findall(pattern, said, re.M)
    assert bytes_in(prepared) / 1.5 < float(shards) * 1e6 < 1.5 * bytes_in(prepared)
    (share,) = re.findall(r"the hold-out takes.*about ([\d.]+)%", said)
    rows = sum(shard.sequences for shard in read_manifest(prepared).of("validation"))
    assert float(share) / 100 == pytest.approx(rows / totals["sequences"], abs=0.01)
    assert contents(tmp_path) == {}
    # without a tokenizer a small one is trained
    path = write_jsonl(tmp_path / "in.jsonl", [f"Text number {number}." for number in range(200)])
    before = contents(tmp_path)
    said = run("--corpus", path, "--recipe", "roberta_tiny", "--dry-run")
    assert "estimating with one trained on a small sample" in said
    assert "about 200 documents" in said
    assert contents(tmp_path) == before and [*tmp_path.iterdir()] == [path]


def test_results_and_time() -> None:
    units = (Work("prepare", "a split", 72.0),) * 100
    about = CorpusEstimate(
        documents=1e6, text=4e9, tokens=1e9, sequences=2e6, disk=1e18, seconds=7200.0, units=units
    )
    lines = describe_estimate({"news": about}, ["disk: D"], 4)
    assert lines[0].startswith("news: about 1,000,000 documents, 4,000.0 MB of text, 1,000,000,000")
    assert lines[1] == "disk: D"
    assert lines[2].startswith("time: about 30 min for 4 workers, if the disks keep up; bound")
    assert lines[2].endswith("; 0.6 MB of text per CPU second")
    assert len(lines) == 3
    for size, seconds, words in (
        (2e9, 600.0, "2.00 GB of Parquet, extracted in 10 min of CPU time"),
        (2e6, 0.4, "2.0 MB of Parquet, extracted in less than 1 s of CPU time"),
    ):
        made = replace(about, extracted=size, units=(*units, Work("extract", "a.csv", seconds)))
        assert describe_estimate({"news": made}, [], 4)[1] == f"documents: about {words}"
    much = describe_estimate({"lao": replace(about, characters=3e9, unknown=6e8)}, [], 4)
    assert much[1].startswith("lao: warning: 20.0% of the characters are lost in unknown tokens")

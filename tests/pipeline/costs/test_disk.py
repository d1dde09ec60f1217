from pathlib import Path

from pipeline.costs.disk import disk
from pipeline.loading.dataset import Dataset
from pipeline.planning.phase_plan import parameters_of
from pipeline.recipes import recipe
from tests.pipeline.costs.planned import planned


def test_shards_that_are_there_are_counted_to_the_byte(prepared: Path) -> None:
    run = recipe("roberta_tiny")
    found = {p.name: p for p in disk(run, parameters_of(run), [Dataset.open(prepared)])}
    folders = (prepared / "rows", prepared / "tokenizer", *prepared.glob("mask-*"))
    files = [path for folder in folders for path in folder.iterdir()]
    files += [prepared / "documents.parquet", prepared / "inputs.parquet"]
    size = sum(path.stat().st_size for path in files)
    assert found["shards"].value == size and found["shards"].basis == "computed"
    assert found["one checkpoint"].value == 12 * 682_240
    assert found["checkpoints"].value == (run.checkpoint.keep + 1) * 12 * 682_240


def test_expected_text_and_shards_of_160_gb() -> None:
    """facts of the data path: 160 GB of text are 38 G tokens; 2 bytes per token of rows and 2.2 of
    ten masks."""
    job = planned("roberta_large", "checkpoint.keep_every=10000", tokens=38 * 10**9)
    found = {p.name: p for p in disk(job.run, 355_000_000, job.train)}
    assert 155e9 < found["raw text"].value < 165e9
    assert 4.2 * 38e9 < found["shards"].value < 4.5 * 38e9
    assert 2.2 * 38e9 < found["staging, each node"].value < 2.6 * 38e9
    kept = job.run.checkpoint.keep + 1 + job.run.steps // 10_000
    assert found["checkpoints"].value == kept * 12 * 355_000_000

"""inspect says what a run, a checkpoint, a model or a folder is, and what takes it."""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline import inspect
from pipeline.base.command_line import data_root
from pipeline.base.errors import DataError
from pipeline.data.inspection.path_kinds import describe_place
from tests.pipeline.preparing import Call

Show = Callable[..., str]


@pytest.fixture
def show(call: Call) -> Show:
    return functools.partial(call, inspect.main)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """What a run of 40 steps leaves at step 20."""
    settings = {"name": "roberta_tiny", "steps": 40}
    checkpoints = tmp_path / "runs" / "tiny" / "checkpoints"
    for step in (10, 20):
        folder = checkpoints / f"step-{step:08d}"
        folder.mkdir(parents=True)
        (folder / "state.json").write_text(json.dumps({"step": step, "run": settings}))
        (folder / "weights-0.safetensors").write_bytes(bytes(2_000_000))
    (checkpoints / "latest").write_text("step-00000020\n")
    run = checkpoints.parent
    data = [{"directory": "/data/one"}, {"directory": "/data/two"}]
    (run / "run.json").write_text(json.dumps({"run": settings, "data": data}))
    lines = [{"step": 19, "loss": 6.5}, {"step": 20, "loss": 6.25, "validation_loss": 6.125}]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"st')
    (run / "INTERRUPTED").write_text("step 20\n")
    return run


def calls(text: str) -> list[list[str]]:
    """The commands after next:."""
    lines = text[text.index("next:") + 5 :].splitlines()
    return [shlex.split(line) for line in lines]


def test_a_run(run: Path, show: Show) -> None:
    text = show(run)
    assert text.splitlines()[:5] == [
        f"{run}: a run of roberta_tiny (interrupted)",
        "  checkpoints  2, the newest at step 20 of 40",
        "  metrics      step 20: loss 6.2500, validation_loss 6.1250",
        "  data         /data/one",
        "  data         /data/two",
    ]
    train, export, evaluate = calls(text)
    assert train[2:5] == ["pipeline.train", "--run", f"{run}/run.json"]
    assert train[5:] == ["--data", "/data/one", "/data/two", "--output", str(run)]
    assert export[2:] == ["pipeline.export", str(run), "--output", f"{run}-export"]
    assert evaluate[2:] == ["pipeline.evaluate", str(run), "--data", "/data/one", "/data/two"]


def test_a_checkpoint(run: Path, show: Show) -> None:
    path = run / "checkpoints" / "step-00000010"
    text = show(path)
    assert f"{path}: a checkpoint of roberta_tiny at step 10 of 40, 2.0 MB\n" in text
    export, train = calls(text)
    assert export[2:] == ["pipeline.export", str(run), "--step", "10", "--output", f"{run}-10"]
    assert train[2:] == [
        "pipeline.train", "--run", f"{run}/run.json", "--from", str(path),
        "--data", "/data/one", "/data/two", "--output", f"{run}-from-10",
    ]  # fmt: skip
    (run / "run.json").unlink()
    assert "next:" not in show(path)


def test_folders_of_results(run: Path, prepared: Path, show: Show, tmp_path: Path) -> None:
    assert f"  {run}: a run\nnext: python -m pipeline.inspect {run}\n" in show(run.parent)
    text = show(run / "checkpoints")
    assert text.count(": a checkpoint") == 2 and "a folder of 2 results" in text
    (tmp_path / "shards" / "half" / ".work").mkdir(parents=True)
    (tmp_path / "shards" / "whole").symlink_to(prepared)
    text = show(tmp_path / "shards")
    assert "half: unfinished shards\n" in text and "whole: shards\n" in text
    assert "has not finished there" in show(tmp_path / "shards" / "half", code=2)


def test_a_model(show: Show, tmp_path: Path) -> None:
    config = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 768}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(3_000_000))
    text = show(tmp_path)
    assert f"{tmp_path}: a model for transformers, BertForMaskedLM, 768 wide; 3.0 MB\n" in text
    prepare, evaluate = calls(text)  # it has no head for pairs, which BERT's recipe trains
    shards = f"{data_root()}/shards/sample-{tmp_path.name}"
    words = ["--corpus", "sample", "--recipe", str(tmp_path), "--output", shards]
    assert prepare[2:] == ["pipeline.prepare", *words]
    assert evaluate[2:] == ["pipeline.evaluate", str(tmp_path), "--data", shards]
    (tmp_path / "config.json").write_text(
        json.dumps(config | {"architectures": ["BertForPreTraining"]})
    )
    _, train, _ = calls(show(tmp_path))
    assert train[2:] == [
        "pipeline.train", str(tmp_path), "--data", shards, "--output", f"runs/{tmp_path.name}",
    ]  # fmt: skip


def test_a_fine_tuning(show: Show, tmp_path: Path) -> None:
    path = tmp_path / "scores" / "stars"
    path.mkdir(parents=True)
    (path / "finetune.json").write_text('{"task": "classification"}')
    assert "a fine-tuning on classification, unfinished; run its command" in show(path)
    scores = {"accuracy": {"median": 0.75}, "macro_f1": {"median": 0.5}}
    record = {"model": {"origin": "runs/tiny"}, "scores": scores}
    (path / "scores.json").write_text(json.dumps(record))
    said = show(path)
    assert f"{path}: runs/tiny, fine-tuned on classification" in said
    assert "accuracy 0.7500, macro_f1 0.5000" in said and "for transformers" not in said
    (path / "model").mkdir()
    assert f"{path / 'model'}, for transformers" in show(path)
    assert f"{path}: a fine-tuning" in show(path.parent)
    (path / "scores.json").write_text("{")
    with pytest.raises(DataError, match=r"scores\.json is damaged"):
        describe_place(path)


@pytest.mark.parametrize(
    ("model_type", "kind"),
    [
        ("gpt2", "GPT2LMHeadModel"), ("bert", "BertForSequenceClassification"),
        ("electra", "ElectraForPreTraining"),
    ],
)  # fmt: skip
def test_a_model_that_no_recipe_continues(
    model_type: str, kind: str, show: Show, tmp_path: Path
) -> None:
    """ELECTRA's discriminator without its generator among them."""
    config = {"model_type": model_type, "architectures": [kind]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"")
    text = show(tmp_path)
    assert f"a model for transformers, {kind}" in text and "next:" not in text


def test_a_list_of_ids(
    prepared: Path, show: Show, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path / "root"))
    ids = pq.read_table(prepared / "documents.parquet")["id"].to_pylist()[:3]
    listed = tmp_path / "taken down.txt"
    listed.write_text("\n".join(ids) + "\n")
    about = f"{listed}: a list of ids of documents, for pipeline.takedown\n"
    shards = tmp_path / "root" / "shards"
    assert show(listed) == f"{about}  no shards in {shards} have all of these documents\n"
    shards.mkdir(parents=True)
    (shards / "mine").symlink_to(prepared)
    (call,) = calls(show(listed))
    assert call[2:] == [
        "pipeline.takedown", "--data", f"{shards}/mine", "--documents", str(listed),
        "--output", f"{shards}/mine-takedown",
    ]  # fmt: skip
    listed.write_text("\n".join([*ids, "a line of text"]))
    assert "next: python -m pipeline.prepare --corpus taken-down --input" in show(listed)


def test_text_says_what_prepares_it(show: Show, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("Some text of a document that is here.\n")
    last = show(tmp_path / "in").splitlines()[-1]
    assert last == f"next: python -m pipeline.prepare --corpus {tmp_path / 'in'}"


def test_a_folder_of_datasets_is_no_checkpoint(tmp_path: Path) -> None:
    """`save_to_disk` writes a state.json too."""
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "state.json").write_text('{"_data_files": []}')
    assert describe_place(tmp_path / "train") == describe_place(tmp_path) == []


def test_what_is_nothing(run: Path, show: Show, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    error = show(tmp_path / "empty", code=2)
    assert "is an empty folder; fill it with pipeline.prepare" in error and error.count("\n") == 1
    assert "no such directory or file" in show(tmp_path / "absent", code=2)
    (run / "run.json").write_text('{"run": 3')
    error = show(run, code=2)
    assert f"{run}/run.json is damaged" in error and error.count("\n") == 1

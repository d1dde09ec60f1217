"""inspect says what a run, a checkpoint, a model or a folder is, and what takes it."""

import json
import shlex
from pathlib import Path

import pytest

from pipeline.base.command_line import data_root
from pipeline.base.errors import DataError
from pipeline.data.inspection.path_kinds import describe_place
from tests.pipeline.ingest.files import put
from tests.pipeline.preparing import Call


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """What a run of 40 steps leaves at step 20."""
    settings = {"name": "roberta_tiny", "steps": 40}
    checkpoints = tmp_path / "runs" / "tiny" / "checkpoints"
    for step in (10, 20):
        folder = checkpoints / f"step-{step:08d}"
        put(folder / "state.json", json.dumps({"step": step, "run": settings}))
        put(folder / "weights-0.safetensors", bytes(2_000_000))
    (checkpoints / "latest").write_text("step-00000020\n")
    run = checkpoints.parent
    data = [{"directory": "/data/one"}, {"directory": "/data/two"}]
    (run / "run.json").write_text(json.dumps({"run": settings, "data": data}))
    lines = [{"step": 19, "loss": 6.5}, {"step": 20, "loss": 6.25, "validation_loss": 6.125}]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"st')
    (run / "INTERRUPTED").write_text("step 20\n")
    return run


def calls(text: str) -> list[list[str]]:
    """Module and arguments of the commands after next:."""
    return [shlex.split(line)[2:] for line in text[text.index("next:") + 5 :].splitlines()]


def test_a_run(run: Path, show: Call) -> None:
    text = show(run)
    assert text.splitlines()[:5] == [
        f"{run}: a run of roberta_tiny (interrupted)",
        "  checkpoints  2, the newest at step 20 of 40",
        "  metrics      step 20: loss 6.2500, validation_loss 6.1250",
        "  data         /data/one",
        "  data         /data/two",
    ]
    data = ["--data", "/data/one", "/data/two"]
    assert calls(text) == [
        ["pipeline.train", "--run", f"{run}/run.json", *data, "--output", str(run)],
        ["pipeline.export", str(run), "--output", f"{run}-export"],
        ["pipeline.evaluate", str(run), *data],
    ]


def test_a_checkpoint(run: Path, show: Call) -> None:
    path = run / "checkpoints" / "step-00000010"
    text = show(path)
    assert f"{path}: a checkpoint of roberta_tiny at step 10 of 40, 2.0 MB\n" in text
    assert calls(text) == [
        ["pipeline.export", str(run), "--step", "10", "--output", f"{run}-10"],
        ["pipeline.train", "--run", f"{run}/run.json", "--from", str(path),
         "--data", "/data/one", "/data/two", "--output", f"{run}-from-10"],
    ]  # fmt: skip
    (run / "run.json").unlink()
    assert "next:" not in show(path)


def test_folders_of_results(run: Path, prepared: Path, show: Call, tmp_path: Path) -> None:
    assert f"  {run}: a run\nnext: python -m pipeline.inspect {run}\n" in show(run.parent)
    text = show(run / "checkpoints")
    assert text.count(": a checkpoint") == 2 and "a folder of 2 results" in text
    (tmp_path / "shards" / "half" / ".work").mkdir(parents=True)
    (tmp_path / "shards" / "whole").symlink_to(prepared)
    text = show(tmp_path / "shards")
    assert "half: unfinished shards\n" in text and "whole: shards\n" in text
    assert "has not finished there" in show(tmp_path / "shards" / "half", code=2)


def test_a_model(show: Call, tmp_path: Path) -> None:
    """What trains it is shown if it has all that a recipe needs: BERT's a head for pairs, too,
    ELECTRA's its generator."""

    def shown(kind: str, model_type: str = "bert", **sizes: int) -> str:
        config = {"model_type": model_type, "architectures": [kind], **sizes}
        (tmp_path / "config.json").write_text(json.dumps(config))
        return show(tmp_path)

    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(3_000_000))
    text = shown("BertForMaskedLM", hidden_size=768)
    assert f"{tmp_path}: a model for transformers, BertForMaskedLM, 768 wide; 3.0 MB\n" in text
    shards = f"{data_root()}/shards/sample-{tmp_path.name}"
    given = ["--corpus", "sample", "--recipe", str(tmp_path), "--output", shards]
    prepare, evaluate = ["pipeline.prepare", *given], ["pipeline.evaluate", str(tmp_path)]
    train = ["pipeline.train", str(tmp_path)]
    data, run = ["--data", shards], ["--output", f"runs/{tmp_path.name}"]
    assert calls(text) == [prepare, evaluate + data]
    text = shown("BertForPreTraining")
    assert calls(text) == [prepare, train + data + run, evaluate + data]
    for model_type, kind in (
        ("gpt2", "GPT2LMHeadModel"), ("bert", "BertForSequenceClassification"),
        ("electra", "ElectraForPreTraining"),
    ):  # fmt: skip
        text = shown(kind, model_type)
        assert f"a model for transformers, {kind}" in text and "next:" not in text


def test_a_fine_tuning(show: Call, tmp_path: Path) -> None:
    path = tmp_path / "scores" / "stars"
    put(path / "finetune.json", '{"task": "classification"}')
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


def test_a_folder_of_datasets_is_no_checkpoint(tmp_path: Path) -> None:
    """`save_to_disk` writes a state.json too."""
    put(tmp_path / "train" / "state.json", '{"_data_files": []}')
    assert describe_place(tmp_path / "train") == describe_place(tmp_path) == []


def test_what_is_nothing(run: Path, show: Call, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (run / "run.json").write_text('{"run": 3')
    for path, said in (
        (tmp_path / "empty", "is an empty folder; fill it with pipeline.prepare"),
        (tmp_path / "absent", "no such directory or file"),
        (run, f"{run}/run.json is damaged"),
    ):
        error = show(path, code=2)
        assert said in error and error.count("\n") == 1

import functools
import math
import re
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file

from model.pieces import pieces_of
from model.tasks.task_model import TaskDesign
from pipeline import evaluate, finetune
from pipeline import export as export_command
from pipeline.downstream.starting_weights import load_start, save_folder
from pipeline.training.run_directory.run_json import read_record
from pipeline.training.weights import model_folders
from tests.pipeline.preparing import Call, contents, small_disk
from tests.pipeline.training.toy_checkpoints import break_weight

FILES = ["README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


@pytest.fixture
def export(call: Call) -> Call:
    return functools.partial(call, export_command.main)


def test_transformers_loads_the_folder_and_fills_masks(
    trained: Path, tmp_path: Path, export: Call
) -> None:
    """Of a checkpoint that two ranks have divided between them."""
    run, folder = trained / "2x4-zero3", tmp_path / "deep" / "model"
    assert "exported step 20 of roberta_tiny" in export(run, "--output", folder)
    assert sorted(path.name for path in folder.iterdir()) == FILES
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert isinstance(model, transformers.RobertaForMaskedLM)
    fill = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer)
    assert len(fill("The house was <mask> and old.", top_k=3)) == 3
    ours = model_folders.load_run(run)[0].model
    ids = torch.tensor(tokenizer("The house was <mask> and old.")["input_ids"])
    theirs = model.eval()(ids[None]).logits[0]
    torch.testing.assert_close(ours.logits(ids, pieces_of([len(ids)])), theirs, atol=1e-4, rtol=0)
    assert load_file(folder / "model.safetensors")["lm_head.bias"].shape == (2048,)


def test_every_kept_checkpoint_has_a_folder(
    trained: Path, tmp_path: Path, export: Call, call: Call
) -> None:
    """Equal to that of an export of this step alone."""
    run = trained / "1x16"
    said = export(run, "--all", "--output", tmp_path / "all")
    assert re.findall(r"exported step (\d+)", said) == ["10", "20"]
    export(run, "--step", 10, "--output", tmp_path / "one")
    found = tmp_path / "all" / "step-00000010"
    assert contents(found) == contents(tmp_path / "one")
    assert sorted(path.name for path in found.parent.iterdir()) == [
        "step-00000010", "step-00000020",
    ]  # fmt: skip
    for more, said in (
        (("--step", 10, "--output", tmp_path / "x"), "--step"),
        (("--scores", tmp_path / "x", "--output", tmp_path / "y"), "--scores"),
        (("--output", tmp_path / "all"), "already exists"),
    ):
        assert said in export(run, "--all", *more, code=2)
    (tmp_path / "none").mkdir()
    export(tmp_path / "none", "--all", "--output", tmp_path / "x", code=2)


def test_a_card_is_the_same_at_every_export_of_a_step(
    trained: Path, lesson: Path, tmp_path: Path, export: Call
) -> None:
    """Wherever the run's shards are by then."""
    shutil.copytree(lesson, tmp_path / "moved")
    given = (trained / "1x16", "--step", 10, "--language", "en")
    said = export(*given, "--output", tmp_path / "a b--c")
    assert f"upload: hf upload a-b-c '{tmp_path}/a b--c' ." in said
    export(*given, "--data", tmp_path / "moved", "--output", tmp_path / "again")
    card = (tmp_path / "a b--c" / "README.md").read_bytes()
    assert (tmp_path / "again" / "README.md").read_bytes() == card
    assert b"# 1x16, step 10\n" in card and b'language: ["en"]' in card
    export(trained / "1x16", "--output", tmp_path / "last")
    assert b"# 1x16, step 20\n" in (tmp_path / "last" / "README.md").read_bytes()


@pytest.mark.parametrize(("step", "length"), [(10, 16), (20, 32)])
def test_a_tokenizer_cuts_at_the_longest_rows_that_were_trained(
    step: int, length: int, trained: Path, tmp_path: Path, export: Call
) -> None:
    """The run gives the directory of its shorter rows first. Fine-tuning takes the same length."""
    folder, run = tmp_path / "model", trained / "phased-exact"
    export(run, "--step", step, "--output", folder)
    assert transformers.AutoTokenizer.from_pretrained(folder).model_max_length == length
    assert f"Trained on rows of at most {length} tokens." in (folder / "README.md").read_text()
    for number, given in enumerate((run / f"{step}", folder)):
        start = load_start(given)
        tuned = start.random_model(TaskDesign("classification", ("0", "1")), 0)
        save_folder(tuned, start, tmp_path / str(number))
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / str(number))
        assert tokenizer.model_max_length == length


def test_a_run_records_the_longest_rows_of_what_it_started_from(trained: Path) -> None:
    """Also where it was resumed, by a command that does not name the folder."""
    names = ("init", "init-moved", "fork", "1x16")
    found = [read_record(trained / name).initial_length for name in names]
    assert found == [32, 32, 32, 0]


def test_a_full_disk_is_one_line_and_leaves_nothing(
    trained: Path, tmp_path: Path, export: Call
) -> None:
    output = tmp_path / "model"
    with small_disk(100_000):
        error = export(trained / "1x16", "--output", output, code=2)
    assert f"cannot write {output}/model.safetensors, which takes 0." in error
    assert "File too large" in error and not list(tmp_path.iterdir())


def test_different_logits_are_refused_and_write_nothing(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, export: Call
) -> None:
    def damaged(model: object) -> tuple[object, object]:
        weights, config = original(model)  # type: ignore[arg-type]
        for name in ("lm_head.bias", "lm_head.decoder.bias"):
            weights[name] += 0.01
        return weights, config

    original = model_folders.to_hugging_face
    monkeypatch.setattr(model_folders, "to_hugging_face", damaged)
    error = export(trained / "1x16", "--output", tmp_path / "model", code=2)
    assert "differ by 0.01, more than 0.0001" in error and not list(tmp_path.iterdir())
    assert f"transformers {transformers.__version__} " in error


def test_invalid_exports_are_refused(trained: Path, tmp_path: Path, export: Call) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine").write_text("")
    other = ("--output", tmp_path / "other")
    for words, said in (
        ((trained / "1x16", "--output", tmp_path / "model"), "already exists"),
        ((trained / "1x16", "--step", 3, *other), "saved steps: 10, 20\n"),
        ((trained / "1x16", "--step", -1, *other), "saved steps: 10, 20\n"),
        ((trained, *other, "--language", "English"), "--language English: give codes"),
        ((trained, *other, "--scores", tmp_path), "cannot be read"),
        ((tmp_path, *other), "has no checkpoint"),
    ):
        assert said in export(*words, code=2)


GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_checkpoint_that_is_not_finite_is_refused_by_every_command(
    value: float, tmp_path: Path, call: Call
) -> None:
    run = Path(shutil.copytree(GOLDEN / "runs/roberta", tmp_path / "run"))
    directory, name = run / "checkpoints/step-00000010", "lm_head.dense.bias"
    break_weight(directory, name, value)
    (tmp_path / "cloze").write_text("He runs to the [MASK].\n")
    for file in ("train.tsv", "dev.tsv"):
        (tmp_path / file).write_text("sentence\tlabel\n" + "bad\t0\ngood\t1\n" * 9)
    task = ("--task", "sst2", "--data", tmp_path, "--output", tmp_path / "tuned")
    for main, words in (
        (export_command.main, (run, "--output", tmp_path / "model")),
        (evaluate.main, (run, "--cloze", tmp_path / "cloze", "--json")),
        (finetune.main, (run, *task)),
    ):
        error = call(main, *words, code=2)
        assert f"error: {directory} has weights that are not finite: {name} " in error
    assert not list(tmp_path.glob("model*"))


def test_logits_that_are_not_finite_are_refused(
    trained: Path, tmp_path: Path, export: Call
) -> None:
    """Of weights that are finite, and too large to be multiplied."""
    run = Path(shutil.copytree(trained / "1x16", tmp_path / "run"))
    for name in ("lm_head.layer_norm.weight", "roberta.embeddings.word_embeddings.weight"):
        break_weight(run / "checkpoints/step-00000020", name, 3e38)
    error = export(run, "--output", tmp_path / "model", code=2)
    assert "logits that are NaN or infinite" in error and not list(tmp_path.glob("model*"))

"""The command: continued after a kill, alone or in parts, and its errors in one line."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from pipeline import export, finetune
from pipeline.downstream.starting_weights import load_start
from pipeline.execution.ledger import hold_lock
from tests.pipeline.conftest import run_unheard, started, succeed, torchrun_forked
from tests.pipeline.preparing import Call, at_once_without_locks, contents, wait_until
from tests.pipeline.released.models import save_model

EXPORTS = Path(__file__).parents[1] / "golden/exports"


def write_glue(folder: Path, *, rows: int = 48) -> Path:
    folder.mkdir()
    for name, count in (("train.tsv", rows), ("dev.tsv", 12)):
        lines = [f"the film is {('bad', 'good')[i % 2]} {i}\t{i % 2}" for i in range(count)]
        (folder / name).write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    return folder


def words(data: Path, output: Path, *more: str, model: Path = EXPORTS / "bert") -> list[str]:
    return [
        str(model), "--task", "sst2", "--data", str(data), "--output", str(output),
        "--epochs", "1", "--seeds", "3", "--baselines", "majority", *more,
    ]  # fmt: skip


def results(output: Path) -> dict[str, object]:
    found = {}
    for path in sorted(output.glob("jobs/*/result.json")):
        found[path.parent.name] = json.loads(path.read_text()) | {"seconds": 0}
    return found


def test_it_outlives_the_reader_of_its_output(tmp_path: Path) -> None:
    given = words(write_glue(tmp_path / "glue"), tmp_path / "out", "--seeds", "1")
    assert run_unheard(sys.executable, "-m", "pipeline.finetune", *given) == 0
    assert (tmp_path / "out/scores.json").exists()


def test_killed_and_in_parts_it_gives_what_it_gives_at_once(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, killed = write_glue(tmp_path / "glue"), tmp_path / "killed"
    said = call(finetune.main, *words(data, tmp_path / "whole"))
    assert "accuracy" in said and "n 3" in said
    first = killed / "jobs/model-0-0/result.json"
    with started(sys.executable, "-m", "pipeline.finetune", *words(data, killed)) as running:
        wait_until(first.exists, running)
        running.kill()
    assert not (killed / "scores.json").exists()
    before = first.stat().st_mtime_ns
    call(finetune.main, *words(data, killed, "--part", "2/2"))
    assert not (killed / "scores.json").exists()  # the third seed is the first part's
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    call(finetune.main, *words(data, killed))
    assert first.stat().st_mtime_ns == before
    left, right = (
        json.loads((output / "scores.json").read_text()) for output in (tmp_path / "whole", killed)
    )
    assert left["scores"] == right["scores"]
    assert results(tmp_path / "whole") == results(killed)


def test_a_seed_that_another_process_fine_tunes_is_refused(tmp_path: Path, call: Call) -> None:
    """As when an element of an array is submitted twice."""
    data, output = write_glue(tmp_path / "glue"), tmp_path / "out"
    with hold_lock(output / ".model-0-0.lock"):
        error = call(finetune.main, *words(data, output), code=2)
    lines = error.splitlines()  # after what is said of the data
    assert "is being written by another pipeline.finetune" in lines[-1]
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:]
    call(finetune.main, *words(data, output))
    assert len(results(output)) == 3


def test_a_seed_of_two_processes_counts_once_where_locks_exclude_nobody(tmp_path: Path) -> None:
    data, output = write_glue(tmp_path / "glue"), tmp_path / "out"
    command = ("finetune", *words(data, output, "--seeds", "1"))
    found = at_once_without_locks(tmp_path / "meeting", command, command)
    assert [code for code, *_ in found] == [0, 0], found
    assert sum("was finished by another process first" in said for _, said, _ in found) == 1
    assert (output / "model" / "model.safetensors").exists() and len(results(output)) == 1
    assert not [path for path in output.rglob(".*") if path.suffix != ".lock"]


def test_ranks_of_torchrun_take_turns_at_the_seeds(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seed is trained by one rank alone, and what they write together is what one writes."""
    data = write_glue(tmp_path / "glue")
    alone, two = tmp_path / "alone", tmp_path / "two"
    command = ("-m", "pipeline.finetune")
    call(finetune.main, *words(data, alone))
    ranks = succeed(*torchrun_forked(*command, *words(data, two)))
    assert sorted(re.findall(r"model seed (\d)", ranks.stderr)) == ["0", "1", "2"]
    assert results(two) == results(alone)
    timed = {"scores.json", *(f"jobs/model-0-{seed}/result.json" for seed in range(3))}
    left, right = contents(alone), contents(two)
    assert left.keys() == right.keys() > timed
    for name in left.keys() - timed:
        assert left[name] == right[name], name
    found = [json.loads((output / "scores.json").read_text()) for output in (alone, two)]
    for scores in found:
        del scores["seconds"], scores["runs"]
    assert found[0] == found[1]
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    error = call(finetune.main, *words(data, two), "--part", "1/3", code=2)
    assert "--part 1/3 and 2 ranks of torchrun" in error


def test_counts_are_checked(tmp_path: Path, call: Call) -> None:
    for option, value, said in (
        ("--seeds", "0", "must be 1 or more, got 0"),
        ("--first-seed", "-1", "must be 0 or more, got -1"),
        ("--train-rows", "-1", "must be 0 or more, got -1"),
        ("--first-seed", "9" * 20, f"{'9' * 20} is above 2,147,483,648; lower it"),
    ):
        error = call(finetune.main, *words(tmp_path, tmp_path / "out", option, value), code=2)
        assert error == f"error: {option} {said}\n"


def test_what_changed_since_the_first_seeds_is_refused(tmp_path: Path, call: Call) -> None:
    """Rows, labels, weights and settings of the model, however many seeds are done."""
    data, output = write_glue(tmp_path / "glue"), tmp_path / "out"
    model = shutil.copytree(EXPORTS / "bert", tmp_path / "bert")
    given = (finetune.main, *words(data, output, "--seeds", "2", model=model))
    call(*given, "--part", "1/2")
    kept = contents(output)
    assert "was made with first seed 0, not 2; repeat" in call(*given, "--first-seed", 2, code=2)
    assert contents(output) == kept
    changes = {
        data / "train.tsv": ("good 1\t1", "good 1\t0", "training examples '48 with hash"),
        data / "dev.tsv": ("bad 2\t0", "bad, 2\t0", "development examples '12 with hash"),
        model / "config.json": ('"layer_norm_eps": 1e-12', '"layer_norm_eps": 1e-3', "weights '"),
    }
    for path, (old, new, message) in changes.items():
        before = path.read_text()
        assert before.count(old) == 1
        path.write_text(before.replace(old, new))
        error = call(*given, code=2)
        assert error.startswith(f"error: {output} was made with {message}"), error
        assert error.endswith("; repeat that, or give another --output\n")
        assert error.count("\n") == 1 and contents(output) == kept
        path.write_text(before)
    weights = load_file(model / "model.safetensors")
    weights["bert.embeddings.LayerNorm.bias"][3] += 1e-6
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    assert f"{output} was made with weights '" in call(*given, code=2)
    shutil.copyfile(EXPORTS / "bert/model.safetensors", model / "model.safetensors")
    call(*given)  # nothing has changed
    found = contents(output)
    assert [name for name in kept if "weights" not in name and found[name] != kept[name]] == []


def test_bad_files_are_one_line(tmp_path: Path, call: Call) -> None:
    for number, (name, content, message) in enumerate(
        (
            ("dev.tsv", "sentence\tlabel\na\t2\nb\t1\n", "label '2', which no training example"),
            ("train.tsv", "sentence\tlabel\na\t1\n", "every training example has label '1'"),
            ("test.tsv", "index\tsentence\n0\n", "test.tsv line 2 has 1 column, not 2"),
        )
    ):
        data = write_glue(tmp_path / f"{number}")
        (data / name).write_text(content)
        error = call(finetune.main, *words(data, tmp_path / "o"), code=2)
        assert error.startswith("error: ") and error.count("\n") == 1 and message in error


def test_labels_of_own_files_are_shown_and_asked_about(
    tmp_path: Path, call: Call, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"a text {i}\t{('10', '9', '-1')[i % 3]}\n" for i in range(30)]
    (tmp_path / "a.tsv").write_text("text\tstars\n" + "".join(rows))
    given = (
        EXPORTS / "bert", "--task", "classification", "--train", tmp_path / "a.tsv",
        "--text", "text", "--target", "stars", "--dev-share", 0.2, "--output", tmp_path / "out",
        "--epochs", 1, "--seeds", 1, "--baselines", "majority",
    )  # fmt: skip
    error = call(finetune.main, *given, code=2)
    assert "a.tsv has 8 with label '-1', which usually means none; remove these" in error
    assert error.count("\n") == 1 and not (tmp_path / "out").exists()
    monkeypatch.setattr(sys, "argv", ["x", *map(str, given), "--labels", "-1", "9", "10"])
    finetune.main()
    said = capsys.readouterr().err.splitlines()
    lines = [line for line in said if line.startswith(("development", "training"))]
    assert lines[0].startswith("development: 6 examples of ") and "with seed 0 for" in lines[0]
    assert lines[1:] == [
        "training labels: -1 8, 9 8, 10 8", "development labels: -1 2, 9 2, 10 2",
    ]  # fmt: skip


def test_a_modernbert_folder_to_a_class_of_transformers(tmp_path: Path, call: Call) -> None:
    """Its rows are means, as its configuration says, and longer than its window."""
    vocabulary = load_start(EXPORTS / "roberta").vocabulary
    folder = save_model(
        "ModernBertForMaskedLM", tmp_path / "modern", vocabulary, classifier_pooling="mean"
    )
    data, output = write_glue(tmp_path / "glue"), tmp_path / "out"
    more = ("--seeds", "1", "--baselines", "bag", "--protocol", "modernbert", "--train-rows", "40")
    call(finetune.main, *words(data, output, *more, model=folder))
    scores = json.loads((output / "scores.json").read_text())
    assert scores["model"]["family"] == "modernbert" and scores["protocol"]["source"] == "Warner"
    assert scores["data"]["train"] == 40
    model = transformers.AutoModelForSequenceClassification.from_pretrained(output / "model").eval()
    assert type(model).__name__ == "ModernBertForSequenceClassification"
    assert model.config.classifier_pooling == "mean"
    ends = (model.config.cls_token_id, model.config.sep_token_id)
    assert ends == (vocabulary.bos, vocabulary.eos)
    tokenizer = transformers.AutoTokenizer.from_pretrained(output / "model")
    texts = [line.split("\t")[0] for line in (data / "dev.tsv").read_text().splitlines()[1:]]
    given = tokenizer(texts, padding=True, return_tensors="pt")
    assert given["input_ids"].shape[1] > model.config.local_attention + 1
    with torch.no_grad():
        expected = model(**given).logits.softmax(-1).amax(-1)
    lines = (output / "predictions.jsonl").read_text().splitlines()
    found = torch.tensor([json.loads(line)["score"] for line in lines])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_every_kind_of_start_scores_alike(trained: Path, tmp_path: Path, call: Call) -> None:
    """A run, a checkpoint of it, its export, and what transformers makes of the export."""
    run, exported = trained / "1x16", tmp_path / "exported"
    call(export.main, run, "--output", exported)
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    for name, kind, precision in (
        ("encoder", transformers.AutoModel, torch.float32),
        ("rounded", transformers.AutoModelForMaskedLM, torch.bfloat16),
    ):
        kind.from_pretrained(exported).to(precision).save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    data, found = write_glue(tmp_path / "glue"), {}
    for name, start, origin in (
        ("run", run, f"{run} step 20"),
        ("checkpoint", run / "checkpoints" / "step-00000020", f"{run} step 20"),
        ("earlier", run / "10", f"{run} step 10"),
        ("exported", exported, f"{exported}"),
        ("encoder", tmp_path / "encoder", f"{tmp_path}/encoder"),
        ("rounded", tmp_path / "rounded", f"{tmp_path}/rounded"),
    ):
        output = tmp_path / f"scores-{name}"
        call(finetune.main, *words(data, output, "--seeds", "1", model=start))
        found[name] = results(output), (output / "predictions.jsonl").read_bytes()
        model = json.loads((output / "scores.json").read_text())["model"]
        assert (model["family"], model["origin"]) == ("roberta", origin)
    assert found["checkpoint"] == found["exported"] == found["encoder"] == found["run"]
    assert found["earlier"] != found["run"] != found["rounded"]

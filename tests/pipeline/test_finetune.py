"""The command: continued after a kill, alone or in parts, and its errors in one line."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from pipeline import export, finetune
from pipeline.base.files import is_locked
from pipeline.downstream.starting_weights import load_start
from tests.launching import process
from tests.pipeline.conftest import launch, succeed, torchrun_forked
from tests.pipeline.preparing import Call, at_once_without_locks, contents, small_disk, wait_until
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


def started_in_background(*arguments: object) -> subprocess.Popen[str]:
    """The command as another process, without a reader."""
    command = [sys.executable, "-m", "pipeline.finetune", *arguments]
    return process.start(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def test_killed_and_in_parts_it_gives_what_it_gives_at_once(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, killed = write_glue(tmp_path / "glue"), tmp_path / "killed"
    said = call(finetune.main, *words(data, tmp_path / "whole"))
    assert "accuracy" in said and "n 3" in said
    first = killed / "jobs/model-0-0/result.json"
    running = started_in_background(*words(data, killed))
    wait_until(first.exists, running)
    running.kill()
    running.wait()
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
    """As when an element of an array is submitted twice: two real processes, one suspended."""
    data, output = write_glue(tmp_path / "glue"), tmp_path / "out"
    first = started_in_background(*words(data, output))
    wait_until(lambda: is_locked(output / ".model-0-0.lock"), first)
    first.send_signal(signal.SIGSTOP)
    try:
        error = call(finetune.main, *words(data, output), code=2)
    finally:
        first.send_signal(signal.SIGCONT)
    lines = error.splitlines()  # after what is said of the data
    assert "is being written by another pipeline.finetune" in lines[-1]
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:]
    assert first.wait(120) == 0 and len(results(output)) == 3
    call(finetune.main, *words(data, output))


def test_a_full_disk_is_one_line_and_the_next_run_resumes(tmp_path: Path, call: Call) -> None:
    data, output = write_glue(tmp_path / "glue"), tmp_path / "out"
    with small_disk(30_000):
        error = call(finetune.main, *words(data, output), code=2)
    file = f"{output}/jobs/model-0-0/weights.safetensors"
    (line,) = [line for line in error.splitlines() if line.startswith("error: ")]
    assert f"cannot write {file}, which takes 0." in line and "File too large" in line
    assert not results(output) and not [*output.glob("jobs/*")]
    call(finetune.main, *words(data, output))
    assert len(results(output)) == 3 and (output / "model" / "model.safetensors").exists()


def test_a_seed_of_two_processes_counts_once_where_locks_exclude_nobody(tmp_path: Path) -> None:
    data, output = write_glue(tmp_path / "glue"), tmp_path / "out"
    command = ("finetune", *words(data, output, "--seeds", "1"))
    found = at_once_without_locks(tmp_path / "meeting", command, command)
    assert [code for code, *_ in found] == [0, 0], found
    assert sum("was finished by another process first" in said for _, said, _ in found) == 1
    assert (output / "model" / "model.safetensors").exists() and len(results(output)) == 1
    assert not [path for path in output.rglob(".*") if path.suffix != ".lock"]


def test_ranks_of_torchrun_take_turns_at_the_seeds(tmp_path: Path) -> None:
    """A seed is trained by one rank alone, and what they write together is what one writes."""
    data = write_glue(tmp_path / "glue")
    alone, two = tmp_path / "alone", tmp_path / "two"
    command = ("-m", "pipeline.finetune")
    succeed(sys.executable, *command, *words(data, alone))
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
    both = launch(*torchrun_forked(*command, *words(data, two), "--part", "1/3"))
    assert "--part 1/3 and 2 ranks of torchrun" in both.stderr


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
            ("dev.tsv", "text\tlabel\na\t1\n", "has no column 'sentence'"),
            ("dev.tsv", "sentence\tlabel\na\t2\nb\t1\n", "label '2', which no training example"),
            ("train.tsv", "", "has no examples"),
            ("train.tsv", "sentence\tlabel\na\t1\n", "every training example has label '1'"),
            ("dev.tsv", "sentence\tlabel\na\t1\n", "every development example has label '1'"),
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
    more = ("--seeds", "1", "--baselines", "bag", "--protocol", "modernbert")
    call(finetune.main, *words(data, output, *more, model=folder))
    scores = json.loads((output / "scores.json").read_text())
    assert scores["model"]["family"] == "modernbert" and scores["protocol"]["source"] == "Warner"
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


def test_few_examples_have_the_labels_of_the_whole_file(tmp_path: Path, call: Call) -> None:
    """Few-shot curves of wnut17, whose first sentences lack most tags."""
    for name, rare in (("wnut17train.conll", 8), ("emerging.dev.conll", 2)):
        tags = ["B-group" if i >= rare else "B-person" for i in range(rare + 4)]
        lines = "".join(f"the\tO\nword{i}\t{tag}\n\n" for i, tag in enumerate(tags))
        (tmp_path / name).write_text(lines)
    output = tmp_path / "out"
    given = (
        finetune.main, EXPORTS / "bert", "--task", "wnut17", "--data", tmp_path, "--output", output,
        "--train-rows", 4, "--epochs", 1, "--seeds", 1, "--baselines", "majority",
    )  # fmt: skip
    call(*given)
    config = json.loads((output / "model/config.json").read_text())
    assert sorted(config["label2id"]) == ["B-group", "B-person", "O"]
    assert json.loads((output / "scores.json").read_text())["data"]["train"] == 4


def test_every_kind_of_start_scores_alike(trained: Path, tmp_path: Path, call: Call) -> None:
    """A run, a checkpoint of it, its export, and what transformers makes of the export."""
    run = trained / "1x16"
    checkpoint = run / "checkpoints" / (run / "checkpoints/latest").read_text().strip()
    exported = tmp_path / "exported"
    call(export.main, run, "--output", exported)
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    folders = {"words": transformers.AutoModelForMaskedLM, "encoder": transformers.AutoModel,
               "rounded": transformers.AutoModelForMaskedLM}  # fmt: skip
    for name, kind in folders.items():
        model = kind.from_pretrained(exported)
        if name == "rounded":
            model = model.to(torch.bfloat16)
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    data = write_glue(tmp_path / "glue")
    starts = {
        "run": run, "step": run / "20", "checkpoint": checkpoint, "export": exported,
        "earlier": run / "10", **{name: tmp_path / name for name in folders},
    }  # fmt: skip
    found = {}
    for name, start in starts.items():
        output = tmp_path / f"scores-{name}"
        call(finetune.main, *words(data, output, "--seeds", "1", model=start))
        found[name] = results(output), (output / "predictions.jsonl").read_bytes()
        scores = json.loads((output / "scores.json").read_text())
        assert scores["model"]["family"] == "roberta"
        step = {"earlier": 10, "run": 20, "step": 20, "checkpoint": 20}.get(name)
        assert scores["model"]["origin"] == (f"{run} step {step}" if step else str(start))
    for name in ("step", "checkpoint", "export", "words", "encoder"):
        assert found[name] == found["run"], name
    assert found["earlier"] != found["run"] != found["rounded"]

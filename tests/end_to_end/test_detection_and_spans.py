"""ELECTRA and SpanBERT from text to folders of transformers, killed and resumed on the way."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from model.pieces import pieces_of
from pipeline import export
from pipeline.training.run_directory.metrics_log import read_metrics
from pipeline.training.weights.model_folders import load_folder, load_run
from tests.conftest import Command
from tests.end_to_end.pair_corpora import topical
from tests.end_to_end.test_families import SETTINGS, STEPS
from tests.pipeline.conftest import WORKER, forkrun, launch, started
from tests.pipeline.test_train import tensors, wait_for

PARTS = {"electra_tiny": "rtd", "spanbert_tiny": "sbo"}
SMALL = {
    "electra_tiny": {"encoder.embedding_width": 16, "objective.generator.width": 0.5},
    "spanbert_tiny": {},
}
ADAM = {"optimizer.kind": "adamw", "optimizer.peak_lr": 1e-3}
SAME_SIZE = {"tied": True, "width": 1, "layers": 1}
TIED = {f"objective.generator.{name}": value for name, value in SAME_SIZE.items()}
DROPOUT: dict[str, dict[str, object]] = {
    "electra_tiny": {"encoder.dropout": 0.1, "encoder.attention_dropout": 0.1, **TIED},
    "spanbert_tiny": {"encoder.dropout": 0.1, "encoder.attention_dropout": 0.1},
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory, command: Command) -> Path:
    """A folder of one prepared corpus by the recipes' names."""
    folder = tmp_path_factory.mktemp("families")
    topical(folder / "text.jsonl", 300)
    for recipe in PARTS:
        result = command(
            "prepare", "--corpus", "topics", "--input", folder / "text.jsonl", "--recipe", recipe,
            "--output", folder / recipe, "--workers", 1, TENFOLD_ROOT=str(folder),
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
    return folder


def job(shards: Path, recipe: str, name: str, *extra: object, **changes: object) -> list[str]:
    """Arguments of pipeline.train for a run that takes seconds."""
    settings = SETTINGS | SMALL[recipe] | changes
    parts = [recipe, "--data", shards / recipe, "--output", shards / f"{recipe}-{name}", *extra]
    for path, value in settings.items():
        parts += ["--set", f"{path}={value}"]
    return list(map(str, parts))


@pytest.fixture(scope="module")
def runs(shards: Path) -> Path:
    """Runs by recipe and variant; `killed` was killed after its first checkpoint, and resumed."""
    small = {"batch.per_device": 4}
    two, one, killed = [], [], []
    for recipe in PARTS:
        two.append(job(shards, recipe, "zero3", "--ds", "zero3", **small))
        two.append(job(shards, recipe, "resumed", "--ds", "zero2", "--stop-at", 6, **ADAM))
        one.append(job(shards, recipe, "one"))
        one.append(job(shards, recipe, "adam", **ADAM))
        one.append(job(shards, recipe, "resumed", "--ds", "zero0", **ADAM))
        one.append(job(shards, recipe, "dropout", **DROPOUT[recipe]))
        killed.append(job(shards, recipe, "killed", **DROPOUT[recipe]))
    for arguments in killed:
        with started(sys.executable, "-m", "pipeline.train", *arguments) as process:
            output = Path(arguments[arguments.index("--output") + 1])
            wait_for(output / "checkpoints" / "step-00000006", process)
            process.kill()
        assert not tensors(output, STEPS)
    for name, jobs in (("two", two), ("one", [*one, *killed])):
        path = shards / f"{name}.json"
        path.write_text(json.dumps(jobs))
        start = forkrun(WORKER, path) if name == "two" else [sys.executable, WORKER, path]
        result = launch(*start)
        assert result.returncode == 0, result.stdout + result.stderr
    return shards


SAME = [(recipe, *pair) for recipe in PARTS for pair in (("one", "zero3"), ("adam", "resumed"))]


@pytest.mark.parametrize(("recipe", "reference", "other"), SAME)
def test_traps_22_ranks_stages_and_a_resume_change_nothing(
    runs: Path, recipe: str, reference: str, other: str
) -> None:
    """Each part is divided once, by its own count over the global batch; sampling repeats."""
    expected, found = (read_metrics(runs / f"{recipe}-{name}") for name in (reference, other))
    assert [line["step"] for line in expected] == list(range(1, STEPS + 1))
    part = PARTS[recipe]
    for one, two in zip(expected, found, strict=True):
        for name in ("loss", "mlm_loss", f"{part}_loss", "mask_loss"):
            assert two[name] == pytest.approx(one[name], rel=1e-5), (one["step"], name)
        assert two["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-3)
        for name in ("predictions", "tokens", "sequences"):
            assert two[name] == one[name]
    assert expected[-1]["loss"] < expected[0]["loss"]
    last = found[-1]
    weight = {"rtd": 50, "sbo": 1}[part]
    parts = last["validation_mlm_loss"] + weight * last[f"validation_{part}_loss"]
    assert last["validation_loss"] == pytest.approx(parts)
    for name in [name for name in last if name.startswith("validation_")]:
        if expected[-1][name] is None:  # precision without any suspected token
            assert last[name] is None
        else:
            assert last[name] == pytest.approx(expected[-1][name], rel=1e-4), name


@pytest.mark.parametrize("recipe", PARTS)
def test_killed_and_resumed_is_bit_identical(runs: Path, recipe: str) -> None:
    found = tensors(runs / f"{recipe}-killed", STEPS)
    assert found and found == tensors(runs / f"{recipe}-dropout", STEPS)


def exported(runs: Path, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["export", str(runs / name), "--output", str(folder)])
    export.main()


def loaded(kind: Any, folder: Path) -> Any:
    theirs, report = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    return theirs.eval()


@pytest.mark.parametrize("name", ["electra_tiny-killed", "electra_tiny-zero3"])
def test_both_of_electra_s_models_load(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = tmp_path / "model"
    exported(runs, name, folder, monkeypatch)
    detector = loaded(transformers.AutoModelForPreTraining, folder)
    filler = loaded(transformers.AutoModelForMaskedLM, folder / "generator")
    assert type(detector).__name__ == "ElectraForPreTraining"
    assert type(filler).__name__ == "ElectraForMaskedLM"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    shown = tokenizer("The barako is old.", "A barako was red.", return_tensors="pt")
    for ours in (load_run(runs / name)[0].model, load_folder(folder)):
        with torch.no_grad():
            ids = shown.input_ids[0]
            inputs = (ids, pieces_of([len(ids)]), shown.token_type_ids[0])
            torch.testing.assert_close(
                detector(**shown).logits[0], ours.detect(*inputs), rtol=0, atol=1e-5
            )
            torch.testing.assert_close(
                filler(**shown).logits[0], ours.logits(*inputs), rtol=0, atol=1e-5
            )


def test_spanbert_is_a_bert_with_our_head_in_another_file(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, run = tmp_path / "model", runs / "spanbert_tiny-killed"
    exported(runs, run.name, folder, monkeypatch)
    theirs = loaded(transformers.AutoModelForMaskedLM, folder)
    assert type(theirs).__name__ == "BertForMaskedLM"
    encoder = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    shown = tokenizer("The barako is old.", return_tensors="pt")
    ours, back = load_run(run)[0].model, load_folder(folder)
    with torch.no_grad():
        inputs = shown.input_ids[0], pieces_of([shown.input_ids.shape[1]])
        words = ours.logits(*inputs)
        torch.testing.assert_close(theirs(**shown).logits[0], words, rtol=0, atol=1e-5)
        hidden = ours.encoder(*inputs)
        torch.testing.assert_close(encoder(**shown)[0][0], hidden, rtol=0, atol=1e-5)
    head = load_file(folder / "span_boundary.safetensors")
    assert all(name.startswith("span_boundary.") for name in head) and len(head) == 10
    for (name, one), other in zip(ours.named_parameters(), back.parameters(), strict=True):
        assert torch.equal(one, other), name

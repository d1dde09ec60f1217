"""Families from text to a folder of transformers: prepared, trained, resumed, exported, loaded."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from model.pieces import pieces_of
from pipeline import export
from pipeline.evaluation.held_out import validation_loader
from pipeline.loading.dataset import Dataset
from pipeline.recipes import recipe as named
from pipeline.training.run_directory.metrics_log import read_metrics
from pipeline.training.weights.model_folders import load_run
from tests.conftest import Command
from tests.end_to_end.pair_corpora import numbered, topical
from tests.pipeline.conftest import WORKER, forkrun, launch, started
from tests.pipeline.test_train import tensors, wait_for

FAMILIES = {
    "bert_tiny": ("BertForPreTraining", "seq_relationship_logits"),
    "albert_tiny": ("AlbertForPreTraining", "sop_logits"),
}
CORPORA = {"bert_tiny": topical, "albert_tiny": numbered}
STEPS = 12
SETTINGS = {
    "encoder.width": 32, "encoder.feed_forward": 64, "encoder.initializer_range": 0.2,
    "batch.sequences": 16, "batch.per_device": 16, "steps": STEPS, "schedule.warmup_steps": 2,
    "validation.every": STEPS, "checkpoint.every": 6, "logging.every": 1,
    "optimizer.kind": "lamb", "optimizer.peak_lr": 0.01,
}  # fmt: skip
NARROW = {"albert_tiny": {"encoder.embedding_width": 16}}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory, command: Command) -> Path:
    """A folder of prepared corpora by the recipes' names, which also trains their tokenizers."""
    folder = tmp_path_factory.mktemp("pairs")
    for recipe, write in CORPORA.items():
        write(folder / f"{recipe}.jsonl", 400)
        result = command(
            "prepare", "--corpus", recipe, "--input", folder / f"{recipe}.jsonl",
            "--recipe", recipe, "--output", folder / recipe, "--workers", 1,
            TENFOLD_ROOT=str(folder),
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture(scope="module")
def runs(shards: Path) -> Path:
    """Runs by recipe, ranks and variant; `resumed` was killed halfway, on one rank."""

    def job(recipe: str, name: str, *extra: object, **changes: object) -> list[str]:
        settings = SETTINGS | NARROW.get(recipe, {}) | changes
        parts = [recipe, "--data", shards / recipe, "--output", shards / f"{recipe}-{name}", *extra]
        for path, value in settings.items():
            parts += ["--set", f"{path}={value}"]
        return list(map(str, parts))

    small, adam = {"batch.per_device": 4}, {"optimizer.kind": "adamw", "optimizer.peak_lr": 1e-3}
    part = {"encoder.sharing": "attention", "encoder.layers": 4, "encoder.groups": 2}
    two, one = [], []
    for recipe in FAMILIES:
        two.append(job(recipe, "zero3", "--ds", "zero3", **small))
        two.append(job(recipe, "resumed", "--ds", "zero2", **small))
        one.append(job(recipe, "one"))
        killed = job(recipe, "resumed", "--ds", "zero0")
        with started(sys.executable, "-m", "pipeline.train", *killed) as process:
            wait_for(shards / f"{recipe}-resumed" / "checkpoints" / "step-00000006", process)
            process.kill()
        assert not tensors(shards / f"{recipe}-resumed", STEPS)
    two.append(job("bert_tiny", "adam-two", "--ds", "zero1", **adam))
    one.append(job("bert_tiny", "adam", **adam))
    two.append(job("albert_tiny", "part-zero3", "--ds", "zero3", **part))
    one.append(job("albert_tiny", "part", **part))
    for name, jobs in (("two", two), ("one", one)):
        path = shards / f"{name}.json"
        path.write_text(json.dumps(jobs))
        start = forkrun(WORKER, path) if name == "two" else [sys.executable, WORKER, path]
        result = launch(*start)
        assert result.returncode == 0, result.stdout + result.stderr
    return shards


SAME = [(recipe, "one", other) for recipe in FAMILIES for other in ("zero3", "resumed")]
SAME += [("bert_tiny", "adam", "adam-two"), ("albert_tiny", "part", "part-zero3")]


@pytest.mark.parametrize(("recipe", "reference", "other"), SAME)
def test_ranks_stages_and_a_resume_change_nothing(
    runs: Path, recipe: str, reference: str, other: str
) -> None:
    expected, found = (read_metrics(runs / f"{recipe}-{name}") for name in (reference, other))
    assert [line["step"] for line in expected] == list(range(1, STEPS + 1))
    for one, two in zip(expected, found, strict=True):
        for name in ("loss", "mlm_loss", "pair_loss", "mask_loss"):
            assert two[name] == pytest.approx(one[name], rel=1e-5), (one["step"], name)
        for name in ("predictions", "tokens", "sequences", "pair_accuracy"):
            assert two[name] == one[name]
    assert expected[-1]["loss"] < expected[0]["loss"]
    last = found[-1]
    weight = named(recipe).objective.pair_weight
    parts = last["validation_mlm_loss"] + weight * last["validation_pair_loss"]
    assert last["validation_loss"] == pytest.approx(parts)
    assert 0 <= last["validation_pair_accuracy"] <= 1


@pytest.mark.parametrize(
    ("recipe", "name"),
    [("bert_tiny", "resumed"), ("albert_tiny", "resumed"), ("albert_tiny", "part-zero3")],
)
def test_traps_35_an_export_loads_in_transformers(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str, name: str
) -> None:
    run, output = str(runs / f"{recipe}-{name}"), str(tmp_path / "model")
    monkeypatch.setattr(sys, "argv", ["export", run, "--output", output])
    export.main()
    architecture, pair_logits = FAMILIES[recipe]
    theirs, report = transformers.AutoModelForPreTraining.from_pretrained(
        tmp_path / "model", output_loading_info=True
    )
    assert type(theirs).__name__ == architecture and not any(report.values()), report
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    shown = tokenizer("The one is river.", "The two is stone.", return_tensors="pt")
    assert shown.token_type_ids.unique().tolist() == [0, 1]
    ours = load_run(runs / f"{recipe}-{name}")[0].model
    with torch.no_grad():
        found: Any = theirs.eval()(**shown)
        inputs = shown.input_ids[0], pieces_of([shown.input_ids.shape[1]]), shown.token_type_ids[0]
        words, pairs = ours.logits(*inputs), ours.pair_logits(*inputs)
    torch.testing.assert_close(found.prediction_logits[0], words, rtol=0, atol=1e-5)
    torch.testing.assert_close(found[pair_logits], pairs, rtol=0, atol=1e-5)
    plain = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "model").eval()
    with torch.no_grad():
        torch.testing.assert_close(plain(**shown).logits[0], words, rtol=0, atol=1e-5)


def test_shared_layers_are_stored_once(runs: Path) -> None:
    """In checkpoints: two layers have the weights of one, and LAMB's state of one."""
    folder = runs / "albert_tiny-one" / "checkpoints" / f"step-{STEPS:08d}"
    state = json.loads((folder / "state.json").read_text())
    layers = [name for name in state["shapes"] if "albert_layer_groups" in name]
    assert layers and all("albert_layer_groups.0." in name for name in layers)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "documents", "steps"), [("albert_tiny", 3000, 200), ("bert_tiny", 1500, 500)]
)
def test_pairs_are_learned(
    tmp_path: Path, command: Command, recipe: str, documents: int, steps: int
) -> None:
    """Sentence order of sentences that count, next sentence of documents with a topic: > 90 %."""
    CORPORA[recipe](tmp_path / "text.jsonl", documents)
    shards, run = tmp_path / "shards", tmp_path / "run"
    result = command(
        "prepare", "--corpus", recipe, "--input", tmp_path / "text.jsonl", "--recipe", recipe,
        "--output", shards, "--set", "data.validation_fraction=0.05", TENFOLD_ROOT=str(tmp_path),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    settings = {
        "steps": steps, "schedule.warmup_steps": steps // 10, "validation.every": steps,
        "data.validation_fraction": 0.05,
    }  # fmt: skip
    changes = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    result = launch(
        *forkrun("-m", "pipeline.train", recipe, "--data", shards, "--output", run, *changes),
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    batch = next(validation_loader([Dataset.open(shards, "validation")], 512).micro_batches())
    assert batch.counts.pairs > 50
    assert read_metrics(run)[-1]["validation_pair_accuracy"] > 0.9

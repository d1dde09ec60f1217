"""Families from text to folders of transformers: prepared, trained, resumed, exported."""

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
from pipeline.evaluation.held_out import validation_loader
from pipeline.loading.dataset import Dataset
from pipeline.recipes import recipe as named
from pipeline.released.choice import read_recipe
from pipeline.training.run_directory.metrics_log import read_metrics
from pipeline.training.weights.model_folders import load_folder, load_run
from tests.conftest import Command
from tests.end_to_end.pair_corpora import numbered, topical
from tests.pipeline.conftest import forkrun, succeed, train_jobs
from tests.pipeline.test_train import tensors

PAIRS = {
    "bert_tiny": ("BertForPreTraining", "seq_relationship_logits"),
    "albert_tiny": ("AlbertForPreTraining", "sop_logits"),
}
"""Classes that have the head of pairs, and its output."""
PARTS = {
    "bert_tiny": "pair", "albert_tiny": "pair", "electra_tiny": "rtd", "spanbert_tiny": "sbo",
}  # fmt: skip
"""The part of each family's loss that is not of masked words."""
CORPORA = {"albert_tiny": numbered}
"""Of the family whose pairs are in or out of order; topical for the others."""
STEPS = 12
SETTINGS = {
    "encoder.width": 32, "encoder.feed_forward": 64, "encoder.initializer_range": 0.2,
    "batch.sequences": 16, "batch.per_device": 16, "steps": STEPS, "schedule.warmup_steps": 2,
    "validation.every": STEPS, "checkpoint.every": 6, "logging.every": 1,
    "optimizer.kind": "lamb", "optimizer.peak_lr": 0.01,
    "encoder.dropout": 0.1, "encoder.attention_dropout": 0,
}  # fmt: skip
NARROW = {
    "albert_tiny": {"encoder.embedding_width": 16},
    "electra_tiny": {"encoder.embedding_width": 16, "objective.generator.width": 0.5},
}
SMALL, ADAM = {"batch.per_device": 4}, {"optimizer.kind": "adamw", "optimizer.peak_lr": 1e-3}
SHARED_IN_PART = {"encoder.sharing": "attention", "encoder.layers": 4, "encoder.groups": 2}
DROPOUT = {"encoder.attention_dropout": 0.1}
TIED = DROPOUT | {f"objective.generator.{name}": value
                  for name, value in (("tied", True), ("width", 1), ("layers", 1))}  # fmt: skip
SAME = [
    *((recipe, "one", "zero3") for recipe in PARTS),
    *((recipe, "one" if recipe in PAIRS else "adam", "resumed") for recipe in PARTS),
    ("albert_tiny", "part", "part-zero3"),
]
"""Runs that differ in ranks, stages, micro-batches and interruptions only."""


def prepare(command: Command, root: Path, recipe: str, text: Path, *more: object) -> Path:
    """Shards of a text in `root`/RECIPE; their tokenizer is trained, too."""
    result = command(
        "prepare", "--corpus", recipe, "--input", text, "--recipe", recipe,
        "--output", root / recipe, *more, TENFOLD_ROOT=str(root),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return root / recipe


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, command: Command) -> Path:
    """Runs by recipe and variant. `resumed` and `stopped` ended halfway, and continued."""
    root = tmp_path_factory.mktemp("families")
    for recipe in PARTS:
        text = root / f"{recipe}.jsonl"
        CORPORA.get(recipe, topical)(text, 400)
        prepare(command, root, recipe, text, "--workers", 1)

    def job(recipe: str, name: str, *extra: object, **changes: object) -> list[str]:
        output = root / f"{recipe}-{name}"
        parts = [recipe, "--data", root / recipe, "--output", output, *extra]
        for path, value in (SETTINGS | NARROW.get(recipe, {}) | changes).items():
            parts += ["--set", f"{path}={value}"]
        return list(map(str, parts))

    half = ("--stop-at", STEPS // 2)
    two = [job(recipe, "zero3", "--ds", "zero3", **SMALL) for recipe in PARTS]
    one = [job(recipe, "one") for recipe in PARTS]
    for recipe in PARTS:
        optimizer = {} if recipe in PAIRS else ADAM
        one.append(job(recipe, "resumed", "--ds", "zero0", *half, **optimizer))
        two.append(job(recipe, "resumed", "--ds", "zero2", **SMALL, **optimizer))
    two.append(job("albert_tiny", "part-zero3", "--ds", "zero3", **SHARED_IN_PART))
    one.append(job("albert_tiny", "part", **SHARED_IN_PART))
    for recipe, dropout in (("electra_tiny", TIED), ("spanbert_tiny", DROPOUT)):
        one.append(job(recipe, "adam", **ADAM))
        one.append(job(recipe, "dropout", **dropout))
        one.append(job(recipe, "stopped", *half, **dropout))
        one.append(job(recipe, "stopped", **dropout))
    train_jobs(root / "one.json", one)
    train_jobs(root / "two.json", two, count=2)  # runs that began on one rank go on, too
    return root


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
        for name in ["predictions", "tokens", "sequences"] + ["pair_accuracy"] * (part == "pair"):
            assert two[name] == one[name]
    assert expected[-1]["loss"] < expected[0]["loss"]
    last = found[-1]
    weight = {"rtd": 50, "sbo": 1, "pair": named(recipe).objective.pair_weight}[part]
    parts = last["validation_mlm_loss"] + weight * last[f"validation_{part}_loss"]
    assert last["validation_loss"] == pytest.approx(parts)
    assert ("pair_accuracy" in last) == (part == "pair")
    assert ("validation_pair_accuracy" in last) == (part == "pair")
    assert 0 <= last.get("validation_pair_accuracy", 0) <= 1
    for name in [name for name in last if name.startswith("validation_")]:
        if expected[-1][name] is None:  # precision without any suspected token
            assert last[name] is None
        else:
            assert last[name] == pytest.approx(expected[-1][name], rel=1e-4), name


@pytest.mark.parametrize("recipe", ["electra_tiny", "spanbert_tiny"])
def test_stopped_and_resumed_is_bit_identical(runs: Path, recipe: str) -> None:
    found = tensors(runs / f"{recipe}-stopped", STEPS)
    assert found and found == tensors(runs / f"{recipe}-dropout", STEPS)


def test_shared_layers_are_stored_once(runs: Path) -> None:
    """In checkpoints: two layers have the weights of one, and LAMB's state of one."""
    folder = runs / "albert_tiny-one" / "checkpoints" / f"step-{STEPS:08d}"
    state = json.loads((folder / "state.json").read_text())
    layers = [name for name in state["shapes"] if "albert_layer_groups" in name]
    assert layers and all("albert_layer_groups.0." in name for name in layers)


def exported(run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["export", str(run), "--output", str(folder)])
    export.main()


def loaded(kind: Any, folder: Path) -> Any:
    theirs, report = kind.from_pretrained(folder, output_loading_info=True)
    # A class of masked words has no pooler.
    report["unexpected_keys"] = {
        name for name in report["unexpected_keys"] if ".pooler." not in name
    }
    assert not any(report.values()), report
    return theirs.eval()


def assert_close(theirs: torch.Tensor, ours: torch.Tensor) -> None:
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["bert_tiny-resumed", "albert_tiny-resumed",
                                  "albert_tiny-part-zero3"])  # fmt: skip
def test_traps_35_an_export_of_pairs_loads_in_transformers(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = tmp_path / "model"
    exported(runs / name, folder, monkeypatch)
    architecture, pair_logits = PAIRS[name.partition("-")[0]]
    theirs = loaded(transformers.AutoModelForPreTraining, folder)
    assert type(theirs).__name__ == architecture
    plain = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    shown = tokenizer("The one is river.", "The two is stone.", return_tensors="pt")
    assert shown.token_type_ids.unique().tolist() == [0, 1]
    ours = load_run(runs / name)[0].model
    with torch.no_grad():
        found = theirs(**shown)
        inputs = shown.input_ids[0], pieces_of([shown.input_ids.shape[1]]), shown.token_type_ids[0]
        words = ours.logits(*inputs)
        assert_close(found.prediction_logits[0], words)
        assert_close(found[pair_logits], ours.pair_logits(*inputs))
        assert_close(plain(**shown).logits[0], words)


def test_both_of_electra_s_models_load(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, run = tmp_path / "model", runs / "electra_tiny-stopped"
    exported(run, folder, monkeypatch)
    detector = loaded(transformers.AutoModelForPreTraining, folder)
    filler = loaded(transformers.AutoModelForMaskedLM, folder / "generator")
    assert type(detector).__name__ == "ElectraForPreTraining"
    assert type(filler).__name__ == "ElectraForMaskedLM"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    shown = tokenizer("The barako is old.", "A barako was red.", return_tensors="pt")
    ids = shown.input_ids[0]
    inputs = ids, pieces_of([len(ids)]), shown.token_type_ids[0]
    for ours in (load_run(run)[0].model, load_folder(folder)):
        with torch.no_grad():
            assert_close(detector(**shown).logits[0], ours.detect(*inputs))
            assert_close(filler(**shown).logits[0], ours.logits(*inputs))


def test_spanbert_is_a_bert_with_our_head_in_another_file(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, run = tmp_path / "model", runs / "spanbert_tiny-stopped"
    exported(run, folder, monkeypatch)
    theirs = loaded(transformers.AutoModelForMaskedLM, folder)
    assert type(theirs).__name__ == "BertForMaskedLM"
    encoder = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    shown = tokenizer("The barako is old.", return_tensors="pt")
    ours, back = load_run(run)[0].model, load_folder(folder)
    with torch.no_grad():
        inputs = shown.input_ids[0], pieces_of([shown.input_ids.shape[1]])
        assert_close(theirs(**shown).logits[0], ours.logits(*inputs))
        assert_close(encoder(**shown)[0][0], ours.encoder(*inputs))
    head = load_file(folder / "span_boundary.safetensors")
    assert all(name.startswith("span_boundary.") for name in head) and len(head) == 10
    continued = read_recipe(str(folder)).run
    assert (continued.objective.kind, continued.data.masking) == ("mlm_sbo", "span")
    for (name, one), other in zip(ours.named_parameters(), back.parameters(), strict=True):
        assert torch.equal(one, other), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "documents", "steps"), [("albert_tiny", 3000, 200), ("bert_tiny", 1500, 500)]
)
def test_pairs_are_learned(
    tmp_path: Path, command: Command, recipe: str, documents: int, steps: int
) -> None:
    """Sentence order of sentences that count, next sentence of documents with a topic: > 90 %."""
    text, run = tmp_path / "text.jsonl", tmp_path / "run"
    CORPORA.get(recipe, topical)(text, documents)
    held_out = ("--set", "data.validation_fraction=0.05")
    shards = prepare(command, tmp_path, recipe, text, *held_out)
    settings = {"steps": steps, "schedule.warmup_steps": steps // 10, "validation.every": steps}
    changes = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    given = (recipe, "--data", shards, "--output", run, *held_out, *changes)
    succeed(*forkrun("-m", "pipeline.train", *given), timeout=600)
    batch = next(validation_loader([Dataset.open(shards, "validation")], 512).micro_batches())
    assert batch.counts.pairs > 50
    assert read_metrics(run)[-1]["validation_pair_accuracy"] > 0.9

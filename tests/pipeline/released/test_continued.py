"""The settings that continue a model, and how many steps a text is worth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from model.hugging_face.conversion import to_hugging_face
from model.hugging_face.electra_folders import to_folders
from model.objectives.replaced_tokens import ReplacedTokenModel
from pipeline.config.run import Run
from pipeline.config.settings import override
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.planning.build import build_model
from pipeline.recipes import RECIPES, recipe
from pipeline.released.continued import PEAK_RATES, continued_run, run_name, within_passes
from pipeline.released.folder import read_released
from pipeline.training.weights.initial_weights import load_initial_weights
from tests.pipeline.released.models import save_electra, save_model

KINDS = {
    "bert": ("BertForPreTraining", "wordpiece"),
    "albert": ("AlbertForPreTraining", "unigram-uncased"),
    "electra": ("", "wordpiece-uncased"),
}


def saved(
    family: str, spare: int, folder: Path, vocabularies: dict[str, Vocabulary], roberta: Path
) -> Path:
    """spare: rows of the table that the tokenizer has no ids for."""
    kind, name = KINDS.get(family, ("RobertaForMaskedLM", ""))
    vocabulary = vocabularies[name] if name else read_vocabulary(roberta)
    rows = vocabulary.size + spare
    if family == "electra":
        return save_electra(folder, vocabulary, vocab_size=rows)
    shares = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
    settings = shares if family == "bert" else {}
    return save_model(kind, folder, vocabulary, vocab_size=rows, **settings)


@pytest.mark.parametrize("spare", [0, 48, 1], ids="{} rows without an id".format)
@pytest.mark.parametrize("family", ["roberta", "bert", "albert", "electra"])
def test_a_run_has_the_models_sizes_and_starts_with_its_weights(
    family: str,
    spare: int,
    word_vocabularies: dict[str, Vocabulary],
    tiny_tokenizer: Path,
    tmp_path: Path,
) -> None:
    """What an export before the first step would hold is what the folder holds."""
    folder = saved(family, spare, tmp_path / "model", word_vocabularies, tiny_tokenizer)
    model = read_released(folder)
    run = continued_run(model, folder.name)
    assert (run.name, run.encoder.layers, run.encoder.width) == ("model", 2, 32)
    assert run.data.sequence_length == run.encoder.positions == 32
    assert run.data.vocab_size == model.vocabulary.size + spare
    assert (run.data.tokenizer, run.data.lower_case) == (
        model.vocabulary.kind, model.vocabulary.lower_case,
    )  # fmt: skip
    base = recipe(f"{family}_base")
    assert (run.data.format, run.data.masking) == (base.data.format, base.data.masking)
    assert run.objective.kind == base.objective.kind
    assert run.optimizer.peak_lr == PEAK_RATES[family]
    if family == "bert":
        assert (run.encoder.dropout, run.encoder.attention_dropout) == (0.2, 0.3)
        assert run.data.lower_case is False
    if family == "electra":
        assert run.objective.generator.width == 0.5

    built = build_model(run, seed=5)
    lines = load_initial_weights(built, folder, folder, ()).lines
    assert not any("new" in line for line in lines)
    if isinstance(built, ReplacedTokenModel):
        (weights, _), (fillers, _) = to_folders(built)
        compare(fillers, folder / "generator")
    else:
        weights = to_hugging_face(built)[0]
    compare(weights, folder)


def compare(weights: dict[str, torch.Tensor], folder: Path) -> None:
    theirs = load_file(folder / "model.safetensors")
    used = [name for name in theirs if "position_ids" not in name]
    assert used and {*used} <= {*weights}
    for name in used:
        assert torch.equal(weights[name], theirs[name]), name


def test_the_schedule_of_a_large_text() -> None:
    run = continued(16_000_000)
    assert (run.steps, run.batch.sequences, run.optimizer.peak_lr) == (12_500, 2_048, 5e-4)
    assert (run.schedule.warmup_steps, run.schedule.kind) == (750, "linear")


def continued(rows: int, *changes: str) -> Run:
    run = override(recipe("roberta_base"), [
        "optimizer.kind=adamw", "optimizer.peak_lr=5e-4", "steps=12500", "batch.sequences=2048",
        "schedule.warmup_steps=750", "validation.every=500", "checkpoint.every=500", *changes,
    ])  # fmt: skip
    return within_passes(run, [change.partition("=")[0] for change in changes], rows)


@pytest.mark.parametrize(
    ("rows", "steps", "sequences", "rate"),
    [
        (2_560_000, 12_500, 2_048, 5e-4),  # ten passes exactly
        (2_000_000, 9_765, 2_048, 5e-4),
        (102_400, 500, 2_048, 5e-4),  # the last that is not small
        (102_300, 3_996, 256, 1e-4),
        (10, 1, 256, 1e-4),
    ],
)
def test_ten_passes_at_most(rows: int, steps: int, sequences: int, rate: float) -> None:
    run = continued(rows)
    assert (run.steps, run.batch.sequences) == (steps, sequences)
    assert run.optimizer.peak_lr == pytest.approx(rate)
    assert run.steps == 1 or run.steps * run.batch.sequences <= 10 * rows
    assert run.schedule.warmup_steps == int(np.ceil(0.06 * steps)) <= run.steps
    assert 1 <= run.validation.every == run.checkpoint.every <= run.steps


def test_what_the_user_chose_stays() -> None:
    assert continued(1_000, "steps=9000").steps == 9_000
    run = continued(100_000, "batch.sequences=512", "validation.every=7")
    assert (run.batch.sequences, run.optimizer.peak_lr, run.validation.every) == (512, 5e-4, 7)
    assert run.steps == 10 * 100_000 // 512
    assert continued(100_000, "optimizer.peak_lr=3e-4").batch.sequences == 2_048
    assert continued(100_000, "schedule.warmup_steps=0").schedule.warmup_steps == 0


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("roberta-base", "roberta-base"),
        ("my model (2)", "my-model-2"),
        ("..", "model"),
        ("modèle", "mod-le"),
        ("roberta_base", "roberta_base-continued"),
    ],
)
def test_names_of_runs(folder: str, name: str) -> None:
    assert run_name(folder) == name and name not in RECIPES
    override(recipe("roberta_base"), [f"name={name}"])

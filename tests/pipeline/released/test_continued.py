"""The settings that continue a model, and how many steps a text is worth."""

from pathlib import Path
from typing import Any

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
from pipeline.training.weights.model_folders import load_folder
from tests.pipeline.downstream.small_work import EXPORTS
from tests.pipeline.released.models import save_electra, save_model

KINDS = {
    "bert": ("BertForPreTraining", "wordpiece"),
    "albert": ("AlbertForPreTraining", "unigram-uncased"),
    "electra": ("", "wordpiece-uncased"),
}


SLOW = {(family, spare) for family in ("bert", "albert") for spare in (48, 1)}
CELLS = [
    pytest.param(family, spare, marks=pytest.mark.slow if (family, spare) in SLOW else ())
    for family in ("roberta", "bert", "albert", "electra")
    for spare in (0, 48, 1)
]


@pytest.mark.parametrize(("family", "spare"), CELLS)
def test_a_run_has_the_models_sizes_and_starts_with_its_weights(
    family: str, spare: int, word_vocabularies: dict[str, Vocabulary], tiny_tokenizer: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    """What an export before the first step would hold is what the folder holds. spare: rows of the
    table that the tokenizer has no ids for."""
    kind, name = KINDS.get(family, ("RobertaForMaskedLM", ""))
    vocabulary = word_vocabularies[name] if name else read_vocabulary(tiny_tokenizer)
    settings: dict[str, Any] = {"vocab_size": vocabulary.size + spare}
    if family == "bert":
        settings |= {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
    folder = tmp_path / "model"
    if family == "electra":
        save_electra(folder, vocabulary, **settings)
    else:
        save_model(kind, folder, vocabulary, **settings)
    model = read_released(folder)
    run = continued_run(model, folder.name)
    assert (run.name, run.encoder.layers, run.encoder.width) == ("model", 2, 32)
    assert run.data.sequence_length == run.encoder.positions == 32
    assert run.data.vocab_size == model.vocabulary.size + spare
    kinds = (model.vocabulary.kind, model.vocabulary.lower_case)
    assert (run.data.tokenizer, run.data.lower_case) == kinds
    base = recipe(f"{family}_base")
    assert (run.data.format, run.data.masking) == (base.data.format, base.data.masking)
    assert run.objective.kind == base.objective.kind
    assert run.optimizer.peak_lr == PEAK_RATES[family]
    if family == "bert":
        assert (run.encoder.dropout, run.encoder.attention_dropout) == (0.2, 0.3)
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


def test_an_exported_spanbert_is_continued_with_its_head_of_span_boundaries() -> None:
    """Which is in a file beside the weights that transformers reads."""
    folder = EXPORTS / "spanbert"
    run = continued_run(read_released(folder), "again")
    assert (run.objective.kind, run.data.masking) == ("mlm_sbo", "span")
    built = build_model(run, seed=5)
    lines = load_initial_weights(built, folder, folder, ()).lines
    assert not any("new, initialized" in line for line in lines)
    stored = dict(load_folder(folder).named_parameters())
    assert any(name.startswith("boundary_head.") for name in stored)
    for name, weight in built.named_parameters():
        assert torch.equal(weight, stored[name]), name


def compare(weights: dict[str, torch.Tensor], folder: Path) -> None:
    theirs = load_file(folder / "model.safetensors")
    used = [name for name in theirs if "position_ids" not in name]
    assert used and {*used} <= {*weights}
    for name in used:
        assert torch.equal(weights[name], theirs[name]), name


def continued(rows: int, *changes: str) -> Run:
    run = override(recipe("roberta_base"), [
        "optimizer.kind=adamw", "optimizer.peak_lr=5e-4", "steps=12500", "batch.sequences=2048",
        "schedule.warmup_steps=750", "validation.every=500", "checkpoint.every=500", *changes,
    ])  # fmt: skip
    return within_passes(run, [change.partition("=")[0] for change in changes], rows)


def test_ten_passes_at_most_unless_the_user_chose_otherwise() -> None:
    for rows, steps, sequences, rate in (
        (16_000_000, 12_500, 2_048, 5e-4),
        (2_560_000, 12_500, 2_048, 5e-4),  # ten passes exactly
        (2_000_000, 9_765, 2_048, 5e-4),
        (102_400, 500, 2_048, 5e-4),  # the last that is not small
        (102_300, 3_996, 256, 1e-4),
        (10, 1, 256, 1e-4),
    ):
        run = continued(rows)
        assert (run.steps, run.batch.sequences) == (steps, sequences)
        assert run.optimizer.peak_lr == pytest.approx(rate)
        assert run.steps == 1 or run.steps * run.batch.sequences <= 10 * rows
        assert run.schedule.warmup_steps == int(np.ceil(0.06 * steps)) <= run.steps
        assert 1 <= run.validation.every == run.checkpoint.every <= run.steps
        assert run.schedule.kind == "linear"
    # what the user chose stays
    assert continued(1_000, "steps=9000").steps == 9_000
    run = continued(100_000, "batch.sequences=512", "validation.every=7")
    assert (run.batch.sequences, run.optimizer.peak_lr, run.validation.every) == (512, 5e-4, 7)
    assert run.steps == 10 * 100_000 // 512
    assert continued(100_000, "optimizer.peak_lr=3e-4").batch.sequences == 2_048
    assert continued(100_000, "schedule.warmup_steps=0").schedule.warmup_steps == 0


def test_names_of_runs() -> None:
    names = {
        "roberta-base": "roberta-base", "my model (2)": "my-model-2", "..": "model",
        "modèle": "mod-le", "roberta_base": "roberta_base-continued",
    }  # fmt: skip
    for folder, name in names.items():
        assert run_name(folder) == name and name not in RECIPES
        override(recipe("roberta_base"), [f"name={name}"])

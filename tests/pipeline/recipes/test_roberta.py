from __future__ import annotations

import io
import json
import tokenize
from pathlib import Path

import pytest

from pipeline import recipes
from pipeline.base.errors import ConfigError
from pipeline.config.run import Run
from pipeline.config.settings import from_dict, override, to_dict
from pipeline.recipes import RECIPES, recipe

RECIPE_FILES = sorted(Path(recipes.__file__).parent.glob("*.py"))


def parameters(run: Run) -> int:
    """Parameters of the encoder and its MLM head, whose decoder shares the embeddings."""
    width, inner, vocabulary = run.encoder.width, run.encoder.feed_forward, run.data.vocab_size
    layer_norm = 2 * width
    rows = (
        vocabulary + run.encoder.positions + run.encoder.position_offset + run.encoder.segment_types
    )
    embeddings = rows * width + layer_norm
    attention = 4 * (width * width + width) + layer_norm  # query, key, value, output
    feed_forward = width * inner + inner + inner * width + width + layer_norm
    head = width * width + width + layer_norm + vocabulary  # dense, LayerNorm, decoder bias
    return embeddings + run.encoder.layers * (attention + feed_forward) + head


@pytest.mark.parametrize(
    "name, count",
    [
        ("roberta_base", 124_697_433),
        ("roberta_large", 355_412_057),
        ("roberta_base_published", 124_697_433),
        ("roberta_large_published", 355_412_057),
        ("roberta_tiny", 682_240),
    ],
)
def test_parameters_are_exact(name: str, count: int) -> None:
    assert parameters(recipe(name)) == count


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_is_complete_named_and_round_trips(name: str) -> None:
    run = recipe(name)
    assert run.name == name
    assert from_dict(Run, json.loads(json.dumps(to_dict(run)))) == run
    assert override(run, ["steps=20", "phases=[]", "seed=7"]).seed == 7


@pytest.mark.parametrize("size", ["tiny", "base", "large"])
def test_published_twin_differs_in_optimizer_and_schedule_only(size: str) -> None:
    ours, published = recipe(f"roberta_{size}"), recipe(f"roberta_{size}_published")
    assert (ours.optimizer.kind, published.optimizer.kind) == ("lamb", "adamw")
    assert ours.data == published.data  # the same shards serve both
    assert ours.encoder == published.encoder
    assert ours.batch == published.batch


@pytest.mark.parametrize(
    "name, peak_lr, warmup_steps, steps",
    [
        ("roberta_base", 2.5e-3, 3_125, 62_500),
        ("roberta_large", 2.5e-3, 3_125, 62_500),
        ("roberta_base_published", 6e-4, 24_000, 500_000),
        ("roberta_large_published", 4e-4, 30_000, 500_000),
    ],
)
def test_schedules(name: str, peak_lr: float, warmup_steps: int, steps: int) -> None:
    run = recipe(name)
    assert run.batch.sequences == 8_192
    assert (run.optimizer.peak_lr, run.schedule.warmup_steps, run.steps) == (
        peak_lr,
        warmup_steps,
        steps,
    )


def test_published_adam_is_the_paper_s() -> None:
    optimizer = recipe("roberta_large_published").optimizer
    assert (optimizer.beta1, optimizer.beta2, optimizer.eps) == (0.9, 0.98, 1e-6)
    assert (optimizer.weight_decay, optimizer.clip_norm) == (0.01, 0.0)
    published = recipe("roberta_large_published").encoder
    assert published.dropout == published.attention_dropout == 0.1


@pytest.mark.parametrize(
    "name, peak_lr", [("roberta_tiny", 1e-2), ("roberta_tiny_published", 1e-3)]
)
def test_tiny_has_the_settings_that_are_known_to_learn(name: str, peak_lr: float) -> None:
    run = recipe(name)
    assert run.data.sequence_length == run.encoder.positions == 32
    assert (run.encoder.initializer_range, run.encoder.dropout) == (0.02, 0.0)
    assert (run.optimizer.peak_lr, run.optimizer.beta2) == (peak_lr, 0.98)
    assert (run.batch.sequences, run.schedule.warmup_steps, run.steps) == (64, 100, 2_400)


@pytest.mark.parametrize(
    ("name", "kind", "peak_lr", "initializer_range", "steps"),
    [
        ("bert_tiny", "lamb", 1e-2, 0.02, 2_400),
        ("albert_tiny", "adamw", 2e-3, 0.09, 4_800),
        ("electra_tiny", "adamw", 2e-3, 0.09, 2_400),
        ("spanbert_tiny", "adamw", 2e-3, 0.09, 3_600),
    ],
)
def test_tiny_of_other_families_has_the_settings_that_are_known_to_learn(
    name: str, kind: str, peak_lr: float, initializer_range: float, steps: int
) -> None:
    run, roberta = recipe(name), recipe("roberta_tiny")
    assert run.data.sequence_length == run.encoder.positions == 32
    assert run.batch == roberta.batch and run.schedule == roberta.schedule
    assert (run.optimizer.kind, run.optimizer.peak_lr, run.optimizer.beta2) == (kind, peak_lr, 0.98)
    assert (run.encoder.initializer_range, run.encoder.dropout) == (initializer_range, 0.0)
    assert run.steps == steps


def test_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(ConfigError) as error:
        recipe("roberta_lage")
    assert str(error.value) == "unknown recipe 'roberta_lage'; did you mean roberta_large?"
    with pytest.raises(ConfigError) as error:
        recipe("gpt2")
    assert str(error.value) == "unknown recipe 'gpt2'; `tenfold recipes` lists them all"


@pytest.mark.parametrize("file", RECIPE_FILES, ids=lambda file: file.name)
def test_every_number_in_a_recipe_has_its_source_on_its_line(file: Path) -> None:
    tokens = list(tokenize.generate_tokens(io.StringIO(file.read_text()).readline))
    commented = {token.start[0] for token in tokens if token.type == tokenize.COMMENT}
    numbered = {token.start[0] for token in tokens if token.type == tokenize.NUMBER}
    assert not sorted(numbered - commented), f"{file.name}: lines without a source"

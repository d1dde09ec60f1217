import io
import json
import tokenize
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import recipes
from pipeline.base.errors import ConfigError
from pipeline.config.run import Run
from pipeline.config.settings import from_dict, override, to_dict
from pipeline.recipes import RECIPES, recipe
from tests.pipeline.recipes.as_set import assert_set
from tests.pipeline.recipes.on_meta import counted


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_is_complete_named_and_round_trips(name: str) -> None:
    run = recipe(name)
    assert run.name == name
    assert from_dict(Run, json.loads(json.dumps(to_dict(run)))) == run
    assert override(run, ["steps=20", "phases=[]", "seed=7"]).seed == 7


@pytest.mark.parametrize(
    ("size", "count"), [("tiny", 682_240), ("base", 124_697_433), ("large", 355_412_057)]
)
def test_published_twin_differs_in_training_only(size: str, count: int) -> None:
    ours = assert_set(f"roberta_{size}", "optimizer.kind=lamb")
    published = assert_set(f"roberta_{size}_published", "optimizer.kind=adamw")
    assert ours.data == published.data  # the same shards serve both
    assert ours.encoder.attention_dropout == 0
    dropout = 0.0 if size == "tiny" else 0.1
    assert published.encoder == replace(ours.encoder, attention_dropout=dropout)
    assert ours.batch == published.batch
    # of the encoder and its MLM head, whose decoder shares the embeddings
    assert counted(ours, "")[1] == count


def test_schedules_and_adam_are_the_papers() -> None:
    for name, peak_lr, warmup_steps, steps in (
        ("roberta_base", 2.5e-3, 3_125, 62_500),
        ("roberta_large", 2.5e-3, 3_125, 62_500),
        ("roberta_base_published", 6e-4, 24_000, 500_000),
        ("roberta_large_published", 4e-4, 30_000, 500_000),
    ):
        found = f"optimizer.peak_lr={peak_lr} schedule.warmup_steps={warmup_steps} steps={steps}"
        assert_set(name, found, "batch.sequences=8192")
    assert_set(
        "roberta_large_published",
        "optimizer.beta1=0.9 optimizer.beta2=0.98 optimizer.eps=1e-6 optimizer.clip_norm=0",
        "optimizer.weight_decay=0.01 encoder.dropout=0.1 encoder.attention_dropout=0.1",
    )


def test_tiny_has_the_settings_that_are_known_to_learn() -> None:
    for name, kind, peak_lr, initializer_range, steps in (
        ("roberta_tiny", "lamb", 1e-2, 0.02, 2_400),
        ("roberta_tiny_published", "adamw", 1e-3, 0.02, 2_400),
        ("bert_tiny", "lamb", 1e-2, 0.02, 2_400),
        ("albert_tiny", "adamw", 2e-3, 0.09, 4_800),
        ("electra_tiny", "adamw", 2e-3, 0.09, 2_400),
        ("spanbert_tiny", "adamw", 2e-3, 0.09, 3_600),
    ):
        roberta = assert_set("roberta_tiny", "batch.sequences=64 schedule.warmup_steps=100")
        run = assert_set(
            name,
            "data.sequence_length=32 encoder.positions=32 encoder.dropout=0 optimizer.beta2=0.98",
            f"optimizer.kind={kind} optimizer.peak_lr={peak_lr} steps={steps}",
            f"encoder.initializer_range={initializer_range}",
        )
        assert run.batch == roberta.batch and run.schedule == roberta.schedule


def test_unknown_recipe_names_the_nearest() -> None:
    for name, said in (("roberta_lage", "did you mean roberta_large"), ("gpt2", "lists them all")):
        with pytest.raises(ConfigError, match=f"'{name}'; .*{said}"):
            recipe(name)


def test_every_number_in_a_recipe_has_its_source_on_its_line() -> None:
    for file in Path(recipes.__file__).parent.glob("*.py"):
        tokens = list(tokenize.generate_tokens(io.StringIO(file.read_text()).readline))
        commented = {token.start[0] for token in tokens if token.type == tokenize.COMMENT}
        numbered = {token.start[0] for token in tokens if token.type == tokenize.NUMBER}
        assert not sorted(numbered - commented), f"{file.name}: lines without a source"

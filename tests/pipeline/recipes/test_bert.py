"""BERT's sizes and schedules; test_roberta.py checks that recipes are complete."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from model.hugging_face.conversion import family, logical_parameters
from model.hugging_face.families import BERT
from model.objectives.flops import parameter_count
from model.objectives.masked_language import MaskedLanguageModel
from pipeline.config.data_settings import max_predictions
from pipeline.planning.phase_plan import encoder_config, has_pairs
from pipeline.recipes import recipe
from tests.pipeline.recipes.on_meta import sizes


@pytest.mark.parametrize(
    ("name", "encoder", "heads"),
    [
        ("bert_base", 109_482_240, 110_106_428),
        ("bert_large", 335_141_888, 336_226_108),
        ("bert_base_published", 109_482_240, 110_106_428),
        ("bert_large_published", 335_141_888, 336_226_108),
    ],
)
def test_parameters_are_exact(name: str, encoder: int, heads: int) -> None:
    """Counts of transformers' BertModel with its pooler, and of BertForPreTraining."""
    run = recipe(name)
    found = sizes(run)
    assert sum(size for name, size in found.items() if name.startswith("bert.")) == encoder
    assert sum(found.values()) == heads
    assert parameter_count(encoder_config(run), pair_head=has_pairs(run)) == heads


def test_input_and_objective_are_the_paper_s() -> None:
    data, objective = recipe("bert_base").data, recipe("bert_base").objective
    assert (data.format, data.segments.label, data.segments.short_share) == (
        "segment_pair", "next", 0.1,
    )  # fmt: skip
    assert (data.tokenizer, data.lower_case, data.vocab_size) == ("wordpiece", True, 30_522)
    assert (data.masking, data.masks.rate, max_predictions(data)) == ("token", 0.15, 77)
    assert (objective.kind, objective.pair_weight) == ("mlm_pair", 1.0)


@pytest.mark.parametrize("size", ["base", "large"])
def test_published_adam_and_schedule_are_the_paper_s(size: str) -> None:
    ours, published = recipe(f"bert_{size}"), recipe(f"bert_{size}_published")
    assert ours.data == published.data
    assert replace(ours.encoder, initializer="truncated_normal") == published.encoder
    optimizer = published.optimizer
    assert (optimizer.kind, optimizer.peak_lr, optimizer.beta1, optimizer.beta2) == (
        "adamw", 1e-4, 0.9, 0.999,
    )  # fmt: skip
    assert (optimizer.weight_decay, optimizer.decay_vectors) == (0.01, False)
    assert (published.batch.sequences, published.steps) == (256, 1_000_000)
    assert (published.schedule.kind, published.schedule.warmup_steps) == (
        "linear_from_start", 10_000,
    )  # fmt: skip
    assert not optimizer.bias_correction
    (phase,) = published.phases
    assert (phase.steps, phase.sequence_length, phase.sequences) == (900_000, 128, 256)
    assert (ours.optimizer.kind, ours.batch.sequences) == ("lamb", 8_192)


def test_tiny_is_a_bert() -> None:
    run = recipe("bert_tiny")
    model = MaskedLanguageModel(encoder_config(run), seed=0, pair_weight=1.0)
    assert family(model) is BERT
    assert sum(torch.Size(part.shape).numel() for part in logical_parameters(model)) == 698_882

"""BERT's sizes and schedules; test_roberta.py checks that recipes are complete."""

from dataclasses import replace

import pytest

from model.hugging_face.conversion import family
from model.hugging_face.families import BERT
from pipeline.config.data_settings import max_predictions
from pipeline.planning.build import build_model
from pipeline.recipes import recipe
from tests.pipeline.recipes.as_set import assert_set
from tests.pipeline.recipes.on_meta import counted


@pytest.mark.parametrize(
    ("size", "counts"),
    [("base", (109_482_240, 110_106_428)), ("large", (335_141_888, 336_226_108))],
)
def test_sizes_and_published_training_are_the_paper_s(size: str, counts: tuple[int, int]) -> None:
    """Counts of transformers' BertModel with its pooler, and of BertForPreTraining."""
    ours = assert_set(f"bert_{size}", "optimizer.kind=lamb batch.sequences=8192")
    published = assert_set(
        f"bert_{size}_published",
        "optimizer.kind=adamw optimizer.peak_lr=1e-4 optimizer.beta1=0.9 optimizer.beta2=0.999",
        "optimizer.weight_decay=0.01 optimizer.decay_vectors=false",
        "optimizer.bias_correction=false batch.sequences=256 steps=1000000",
        "schedule.kind=linear_from_start schedule.warmup_steps=10000 phases.0.steps=900000",
        "phases.0.sequence_length=128 phases.0.sequences=256",
    )
    assert len(published.phases) == 1
    assert ours.data == published.data
    assert ours.encoder.attention_dropout == 0
    assert published.encoder == replace(
        ours.encoder, attention_dropout=0.1, initializer="truncated_normal"
    )
    assert counted(ours, "bert.") == counted(published, "bert.") == counts


def test_input_and_objective_are_the_paper_s_and_tiny_is_a_bert() -> None:
    run = assert_set(
        "bert_base",
        "data.format=segment_pair data.segments.label=next data.segments.short_share=0.1",
        "data.tokenizer=wordpiece data.lower_case=true data.vocab_size=30522 data.masking=token",
        "data.masks.rate=0.15 objective.kind=mlm_pair objective.pair_weight=1",
    )
    assert max_predictions(run.data) == 77
    tiny = recipe("bert_tiny")
    assert family(build_model(tiny, seed=0)) is BERT
    assert counted(tiny, "")[1] == 698_882

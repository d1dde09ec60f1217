from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from pipeline.base.errors import ConfigError, DataError
from pipeline.config.settings import override
from pipeline.costs.shapes.activations import micro_batch
from pipeline.data.shards.arrow_files import read_table
from pipeline.loading.dataset import Dataset
from pipeline.loading.loader import Loader
from pipeline.loading.micro_batch import BatchForm
from pipeline.loading.order import Order, Share
from pipeline.planning.build import build_model
from pipeline.planning.phase_plan import (
    encoder_config,
    flops_of,
    format_digits,
    make_plan,
    micro_batches,
)
from pipeline.recipes import recipe
from tests.pipeline.loading.conftest import prepare_directory
from tests.remedies import alternatives


@pytest.mark.parametrize(
    ("sequences", "ranks", "per_device", "accumulation", "rows"),
    [
        (8192, 8, 128, 8, 128),
        (8192, 24, 128, 3, 114),  # 342 per rank: three of 114, not two of 128 and one of 86
        (50, 1, 32, 2, 25),
        (5, 4, 32, 1, 2),
        (3, 3, 32, 1, 1),
    ],
)
def test_micro_batches_are_the_fewest_and_equal(
    sequences: int, ranks: int, per_device: int, accumulation: int, rows: int
) -> None:
    assert micro_batches(sequences, ranks, per_device) == (accumulation, rows)


def test_a_plan_counts_what_is_there(prepared: Path) -> None:
    run = recipe("roberta_tiny")
    train, validation = (Dataset.open(prepared, split) for split in ("train", "validation"))
    plan = make_plan(run, 3, 1, [train], [validation], run.steps)
    totals = train.manifest.totals
    assert plan.train_sequences + plan.validation_sequences == totals["sequences"]
    assert (plan.rows, plan.accumulation) == (22, 1)
    assert plan.epochs == 2400 * 64 / plan.train_sequences
    mean = sum(shard.tokens for shard in train.shards) / plan.train_sequences
    assert plan.tokens == round(153_600 * mean)
    assert plan.parameters == 682_240
    assert "64 sequences = 3 ranks x 1 micro-batch x 22 rows; ZeRO" in plan.lines()[1]
    tokens = 3 * plan.on_gpu.accumulation * plan.on_gpu.capacity.tokens
    assert plan.on_gpu.dead_share == pytest.approx(1 - 64 * mean / tokens)
    with pytest.raises(ConfigError, match=r"batch.sequences=64 is smaller than the 65 ranks"):
        make_plan(run, 65, 1, [train], [validation], run.steps)
    shifted = replace(run, encoder=replace(run.encoder, position_offset=1))
    with pytest.raises(ConfigError, match=r"needs pad id 0, .* has 1; add --set .*offset=2 "):
        make_plan(shifted, 1, 1, [train], [validation], run.steps)


@pytest.mark.parametrize(
    "settings",
    [
        "objective.kind=mlm_pair data.format=segment_pair data.segments.label=next",
        "encoder.activation=gelu_tanh",
        "encoder.embedding_width=64",
        "encoder.sharing=all encoder.groups=2",
        "encoder.position_offset=1",
        "batch.sequences=2",
        "batch.step_tokens=32",
        "batch.warmup_steps=9 batch.first_sequences=1",
        "batch.warmup_steps=9 batch.step_tokens=4096 batch.first_sequences=50000",
    ],
)
def test_what_cannot_be_planned_names_settings_that_can(prepared: Path, settings: str) -> None:
    """A model without a class of transformers, and batches too small for the ranks."""
    run = override(recipe("roberta_tiny"), settings.split())
    train, validation = (Dataset.open(prepared, split) for split in ("train", "validation"))
    with pytest.raises(ConfigError) as error:
        make_plan(run, 3, 1, [train], [validation], run.steps)
    remedies = alternatives(str(error.value))
    for remedy in remedies:
        make_plan(override(run, remedy), 3, 1, [train], [validation], run.steps)
    if settings.startswith("objective"):  # BERT's positions, before giving up the pair head
        assert remedies[0] == ["encoder.position_offset=0"]
        assert "for bert" in str(error.value) and remedies[-3] == ["objective.kind=mlm"]
        assert {"encoder.position_kind=rotary", "objective.kind=mlm"} < {*remedies[-2]}
    if settings.startswith(("objective", "encoder")) and settings != "encoder.position_offset=1":
        assert remedies[-1] == ["checkpoint.exportable=false"]


def test_what_cannot_be_exported_trains_if_that_is_said(prepared: Path) -> None:
    train, validation = (Dataset.open(prepared, split) for split in ("train", "validation"))
    run = override(recipe("roberta_tiny"), ["encoder.norm=pre"])
    with pytest.raises(ConfigError, match=r"norm=pre.* --set checkpoint\.exportable=false"):
        make_plan(run, 1, 1, [train], [validation], run.steps)
    run = override(run, ["checkpoint.exportable=false"])
    assert make_plan(run, 1, 1, [train], [validation], run.steps).parameters == 682_240


def test_a_batch_in_tokens_has_the_sequences_that_hold_them(prepared: Path) -> None:
    run = recipe("roberta_tiny")
    train, validation = (Dataset.open(prepared, split) for split in ("train", "validation"))
    mean = sum(shard.tokens for shard in train.shards) / int(train.piece_rows.sum())
    matched = replace(run, batch=replace(run.batch, step_tokens=100_000))
    plan = make_plan(matched, 2, 1, [train], [validation], run.steps)
    assert plan.sequences == round(100_000 / mean) > 64
    assert abs(plan.tokens - 2400 * 100_000) < 2400 * mean
    per_sequence = 100_000 / plan.sequences
    assert f"batch: about 100,000 tokens per step, {per_sequence:,.1f} per sequence" in plan.lines()
    few = replace(run, batch=replace(run.batch, step_tokens=32))
    with pytest.raises(ConfigError, match=r"batch.sequences=1 \(batch.step_tokens=32\) is smaller"):
        make_plan(few, 2, 1, [train], [validation], run.steps)
    grows = replace(run.batch, step_tokens=100_000, warmup_steps=9, first_sequences=50_000)
    with pytest.raises(ConfigError, match=r"above the \d+ sequences of batch.step_tokens=100000"):
        make_plan(replace(run, batch=grows), 2, 1, [train], [validation], run.steps)


def test_the_plan_fills_micro_batches_as_the_loader_does(tmp_path: Path) -> None:
    """On a GPU steps need as many as planned, but for a few, and leave as much dead."""
    train = Dataset.open(prepare_directory(tmp_path / "news", (1500, 300)))
    given = recipe("roberta_tiny")
    run = replace(
        given,
        data=replace(given.data, sequence_length=70),
        encoder=replace(given.encoder, positions=70),
        batch=replace(given.batch, sequences=400, per_device=32),
    )
    plan = make_plan(run, 2, 1, [train], [train], run.steps)
    assert plan.on_gpu.capacity.tokens <= 32 * 70
    order = Order(kind="global", seed=0, piece_rows=(train.piece_rows,))
    share = Share(sequences=400, per_device=32, world_size=2)
    source = Loader([train], order, share, form=BatchForm(capacity=plan.on_gpu.capacity)).steps()
    steps = [next(source) for _ in range(20)]
    counts = [step.accumulation for step in steps]
    assert np.mean([count <= plan.on_gpu.accumulation for count in counts]) >= 0.9
    assert min(counts) >= plan.on_gpu.accumulation - 1
    batches = [batch for step in steps for batch in step.batches]
    assert {batch.input_ids.numel() for batch in batches} == {plan.on_gpu.capacity.tokens}
    used = np.mean([batch.tokens for batch in batches])
    dead = 1 - used * np.mean(counts) / (plan.on_gpu.accumulation * plan.on_gpu.capacity.tokens)
    assert dead == pytest.approx(plan.on_gpu.dead_share, abs=0.02)
    fixed = plan.on_gpu
    words = f"on a GPU: {fixed.accumulation} micro-batches of {fixed.capacity.tokens:,} tokens"
    assert plan.lines()[2] == f"{words} per rank, {plan.on_gpu.dead_share:.1%} of them dead"
    assert plan.step_flops < flops_of(run, 400, 0, 70)  # only tokens cost FLOPs


@pytest.mark.parametrize(
    "family", ["bert", "roberta", "albert", "electra", "spanbert", "modernbert"]
)
def test_flops_of_every_family_equal_torchs_count(family: str) -> None:
    """Of a whole forward and backward pass; full rows, and no padding words to count. Windows are
    read in blocks, of which their pairs are a part: `test_flops` counts these."""
    whole = ["encoder.window=0", "encoder.global_every=1"]
    settings = ["encoder.dropout=0", "data.vocab_size=2048", *whole]
    run = override(recipe(f"{family}_tiny"), settings)
    model, inputs = build_model(run, seed=0).train(), micro_batch(run, 3)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        sums = model(inputs)
        torch.stack([sums[f"{part.name}_loss"] for part in model.parts]).sum().backward()
    ours = flops_of(run, 3, len(inputs.positions_K), run.data.sequence_length)
    assert counter.get_total_flops() == pytest.approx(ours, rel=0.01)


def test_lengths_are_sampled_from_readable_record_batches(tmp_path: Path) -> None:
    directory = prepare_directory(tmp_path / "news", (1500, 300))
    dataset = Dataset.open(directory)
    tables = [read_table(directory / shard.file) for shard in dataset.shards]
    lengths = [table["input_ids"].combine_chunks().value_lengths().to_pylist() for table in tables]
    assert dataset.some_lengths().tolist() == lengths[0] + lengths[1]
    (directory / "rows/train-00000.arrow").write_bytes(b"not an Arrow file")
    assert dataset.some_lengths().tolist() == lengths[1]
    (directory / "rows/train-00001.arrow").unlink()
    with pytest.raises(DataError, match=r"rows/train-00001.arrow cannot be read"):
        dataset.some_lengths()


def test_the_encoder_gets_the_vocabulary_of_the_data() -> None:
    config = encoder_config(recipe("roberta_base"))
    assert (config.vocab_size, config.width, config.positions) == (50_265, 768, 512)


def test_large_numbers_are_shown_without_an_exponent() -> None:
    assert [format_digits(value, 2) for value in (0.00123, 0.0, 1.26, 4.3, 123.4)] == [
        "0.0012", "0", "1.3", "4.3", "120",
    ]  # fmt: skip
    assert [format_digits(9214.7, 3), format_digits(1234567.0, 3)] == ["9,210", "1,230,000"]

from collections.abc import Callable
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
from pipeline.planning.phase_plan import Plan, flops_of, format_digits, make_plan, micro_batches
from pipeline.recipes import recipe
from tests.pipeline.loading.conftest import prepare_directory
from tests.remedies import alternatives

TINY = recipe("roberta_tiny")
GROWING = "batch.warmup_steps=9 batch.step_tokens=4096 batch.first_sequences=50000"
Make = Callable[..., Plan]


@pytest.fixture
def plan(prepared: Path) -> Make:
    """plan(run, ranks): of the sample."""
    train, held_out = ([Dataset.open(prepared, split)] for split in ("train", "validation"))
    return lambda run, ranks: make_plan(run, ranks, 1, train, held_out, run.steps)


def test_micro_batches_are_the_fewest_and_equal() -> None:
    for sequences, ranks, per_device, accumulation, rows in (
        (8192, 8, 128, 8, 128),
        (8192, 24, 128, 3, 114),  # 342 per rank: three of 114, not two of 128 and one of 86
        (50, 1, 32, 2, 25),
        (5, 4, 32, 1, 2),
        (3, 3, 32, 1, 1),
    ):
        assert micro_batches(sequences, ranks, per_device) == (accumulation, rows)


def test_a_plan_counts_what_is_there(prepared: Path, plan: Make) -> None:
    train = Dataset.open(prepared)
    found, totals = plan(TINY, 3), train.manifest.totals
    assert found.train_sequences + found.validation_sequences == totals["sequences"]
    assert (found.rows, found.accumulation) == (22, 1)
    assert found.epochs == 2400 * 64 / found.train_sequences
    mean = sum(shard.tokens for shard in train.shards) / found.train_sequences
    assert found.tokens == round(153_600 * mean)
    assert found.parameters == 682_240
    assert "64 sequences = 3 ranks x 1 micro-batch x 22 rows; ZeRO" in found.lines()[1]
    tokens = 3 * found.on_gpu.accumulation * found.on_gpu.capacity.tokens
    assert found.on_gpu.dead_share == pytest.approx(1 - 64 * mean / tokens)
    # a batch in tokens has the sequences that hold them
    found = plan(override(TINY, ["batch.step_tokens=100000"]), 2)
    assert found.sequences == round(100_000 / mean) > 64
    assert abs(found.tokens - 2400 * 100_000) < 2400 * mean
    each = f"{100_000 / found.sequences:,.1f} per sequence"
    assert f"batch: about 100,000 tokens per step, {each}" in found.lines()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("objective.kind=mlm_pair data.format=segment_pair data.segments.label=next", "for bert"),
        ("encoder.activation=gelu_tanh", "gelu_tanh"),
        ("encoder.embedding_width=64", "embedding_width=64"),
        ("encoder.sharing=all encoder.groups=2", "sharing=all"),
        ("encoder.norm=pre", "norm=pre"),
        ("encoder.position_offset=1", "needs pad id 0, .* has 1"),
        ("batch.sequences=2", "sequences=2 .* 3 ranks"),
        ("batch.step_tokens=32", r"sequences=1 \(batch.step_tokens=32\)"),
        ("batch.warmup_steps=9 batch.first_sequences=1", "first_sequences=1"),
        (GROWING, r"above the \d+ sequences of batch.step_tokens=4096"),
    ],
)
def test_what_cannot_be_planned_names_settings_that_can(
    settings: str, message: str, plan: Make
) -> None:
    """A model without a class of transformers, and batches too small for the ranks."""
    run = override(TINY, settings.split())
    with pytest.raises(ConfigError, match=message) as error:
        plan(run, 3)
    remedies = alternatives(str(error.value))
    assert remedies
    for remedy in remedies:
        plan(override(run, remedy), 3)
    if settings.startswith("objective"):  # BERT's positions, before giving up the pair head
        assert remedies[0] == ["encoder.position_offset=0"]
        assert remedies[-3] == ["objective.kind=mlm"]
        assert {"encoder.position_kind=rotary", "objective.kind=mlm"} < {*remedies[-2]}
    if settings == "encoder.position_offset=1":
        assert ["encoder.position_offset=2"] in remedies
    elif settings.startswith(("objective", "encoder")):
        assert remedies[-1] == ["checkpoint.exportable=false"]


def test_the_plan_fills_micro_batches_as_the_loader_does(tmp_path: Path) -> None:
    """On a GPU steps need as many as planned, but for a few, and leave as much dead."""
    train = Dataset.open(prepare_directory(tmp_path / "news", (1500, 300)))
    length = ["data.sequence_length=70", "encoder.positions=70"]
    run = override(TINY, [*length, "batch.sequences=400", "batch.per_device=32"])
    plan = make_plan(run, 2, 1, [train], [train], run.steps)
    fixed = plan.on_gpu
    assert fixed.capacity.tokens <= 32 * 70
    order = Order(kind="global", seed=0, piece_rows=(train.piece_rows,))
    share = Share(sequences=400, per_device=32, world_size=2)
    source = Loader([train], order, share, form=BatchForm(capacity=fixed.capacity)).steps()
    steps = [next(source) for _ in range(20)]
    counts = [step.accumulation for step in steps]
    assert np.mean([count <= fixed.accumulation for count in counts]) >= 0.9
    assert min(counts) >= fixed.accumulation - 1
    batches = [batch for step in steps for batch in step.batches]
    assert {batch.input_ids.numel() for batch in batches} == {fixed.capacity.tokens}
    used = np.mean([batch.tokens for batch in batches])
    dead = 1 - used * np.mean(counts) / (fixed.accumulation * fixed.capacity.tokens)
    assert dead == pytest.approx(fixed.dead_share, abs=0.02)
    words = f"on a GPU: {fixed.accumulation} micro-batches of {fixed.capacity.tokens:,} tokens"
    assert plan.lines()[2] == f"{words} per rank, {fixed.dead_share:.1%} of them dead"
    assert plan.step_flops < flops_of(run, 400, 0, 70)  # only tokens cost FLOPs


@pytest.mark.parametrize(
    "family", ["bert", "roberta", "albert", "electra", "spanbert", "modernbert"]
)
def test_flops_of_every_family_equal_torchs_count(family: str) -> None:
    """Of a whole forward and backward pass; full rows, and no padding words to count. Windows are
    read in blocks, of which their pairs are a part: `test_flops` counts these."""
    settings = "encoder.dropout=0 data.vocab_size=2048 encoder.window=0 encoder.global_every=1"
    run = override(recipe(f"{family}_tiny"), settings.split())
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


def test_large_numbers_are_shown_without_an_exponent() -> None:
    assert [format_digits(value, 2) for value in (0.00123, 0.0, 1.26, 4.3, 123.4)] == [
        "0.0012", "0", "1.3", "4.3", "120",
    ]  # fmt: skip
    assert [format_digits(9214.7, 3), format_digits(1234567.0, 3)] == ["9,210", "1,230,000"]

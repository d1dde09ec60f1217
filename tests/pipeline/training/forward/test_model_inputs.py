from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from model.objectives.masked_language import MaskedLanguageModel
from pipeline.loading.dataset import Dataset
from pipeline.loading.loader import Loader
from pipeline.loading.order import Order, Share
from pipeline.recipes import recipe
from pipeline.training.forward.model_inputs import model_inputs, without_empty_lines
from pipeline.training.planning.plan import encoder_config
from tests.pipeline.loading.conftest import prepare_directory

CPU = torch.device("cpu")


def loader(lesson: Path, sequences: int, rows: int) -> Loader:
    dataset = Dataset.open(lesson)
    order = Order(kind="global", seed=1, shard_rows=(np.asarray(dataset.shard_rows),))
    return Loader([dataset], order, Share(sequences=sequences, per_device=rows))


def test_a_cpu_gets_the_used_slots_only(lesson: Path) -> None:
    batch = next(loader(lesson, 4, 4).micro_batches())
    inputs = model_inputs(batch, CPU, 4)
    assert inputs.segment_ids_BS is None and inputs.pair_labels_R is None
    assert inputs.row_starts_R is None and inputs.cu_seqlens is None
    assert inputs.row_weights_B is batch.row_weights  # another tensor would be another copy
    assert inputs.input_ids_BS.shape == (4, 32) and inputs.mask_id == 4
    assert inputs.lengths_B is None or torch.equal(inputs.lengths_B, batch.lengths)
    slots = [len(part) for part in (inputs.positions_K, inputs.labels_K, inputs.weights_K)]
    assert slots == [batch.predictions] * 3 and batch.predictions < 4 * 5
    assert inputs.weights_K.min() == 1


def test_segments_of_pairs_reach_the_model(tmp_path: Path) -> None:
    """The loss depends on them with two types and not with one, and pads change nothing."""
    pairs = prepare_directory(tmp_path / "pairs", (40,), label="order")
    batch = next(loader(pairs, 8, 8).micro_batches())
    inputs = model_inputs(batch, CPU, 4)
    assert batch.counts.pairs == int((batch.pair_labels >= 0).sum()) > 0
    assert inputs.segment_ids_BS is not None and inputs.segment_ids_BS.any()
    for types in (1, 2):
        run = recipe("roberta_tiny")
        encoder = replace(run.encoder, positions=70, segment_types=types)
        config = encoder_config(replace(run, encoder=encoder))
        model = MaskedLanguageModel(config, seed=0).eval()
        loss = model(inputs)["mlm_loss"]
        felt = loss != model(inputs._replace(segment_ids_BS=None))["mlm_loss"]
        assert bool(felt) == (types == 2)
        padded = batch.input_ids.clone()
        padded[torch.arange(70) >= batch.lengths[:, None]] = 77
        assert model(inputs._replace(input_ids_BS=padded))["mlm_loss"] == loss


def test_a_batch_of_filling_alone_keeps_one_slot_of_weight_0(lesson: Path) -> None:
    batches = loader(lesson, 4, 3).micro_batches()
    for _ in range(2):
        batch = next(batches)
    assert batch.row_weights.tolist() == [1, 0, 0]
    empty = next(loader(lesson, 2, 2).micro_batches())
    empty = replace(empty, counts=empty.counts._replace(predictions=0))
    assert len(model_inputs(empty, CPU, 4).positions_K) == 1


def test_lengths_are_none_if_every_row_is_full(lesson: Path) -> None:
    found = set()
    for batch, _ in zip(loader(lesson, 1, 1).micro_batches(), range(60), strict=False):
        lengths = model_inputs(batch, CPU, 4).lengths_B
        assert (lengths is None) == (batch.tokens == 32)
        found.add(lengths is None)
    assert found == {True, False}


def test_a_cpu_gets_no_lines_of_weight_0(tmp_path: Path) -> None:
    """Lines after the last row are dropped; a rank without rows keeps one line."""
    pairs = prepare_directory(tmp_path / "pairs", (40,), label="next")
    dataset = Dataset.open(pairs)
    order = Order(kind="global", seed=1, shard_rows=(dataset.shard_rows,))
    source = Loader([dataset], order, Share(sequences=8, per_device=20), packing="rows")
    whole, filling = source.pad_micro_batches(next(source.steps()), 2).batches
    batch = without_empty_lines(whole)
    lines = len(batch.input_ids)
    assert lines == int(whole.row_starts[7]) // 70 + 1 < 8
    assert torch.equal(batch.input_ids, whole.input_ids[:lines])
    assert batch.segment_ids is not None and batch.pair_labels is not None
    shapes = [batch.lengths, batch.segment_ids, batch.row_starts, batch.row_weights]
    assert [len(part) for part in (*shapes, batch.pair_labels)] == [lines, lines, 8, 8, 8]
    assert batch.row_weights.min() == 1
    assert batch.cu_seqlens is not None and batch.cu_seqlens[-1] == lines * 70
    assert len(without_empty_lines(filling).input_ids) == 1
    run = recipe("roberta_tiny")
    config = encoder_config(replace(run, encoder=replace(run.encoder, positions=70)))
    model = MaskedLanguageModel(config, seed=0, pair_weight=1.0).eval()
    given = model_inputs(whole, CPU, 4)
    every = given._replace(
        input_ids_BS=whole.input_ids,
        lengths_B=whole.lengths,
        segment_ids_BS=whole.segment_ids,
        pair_labels_R=whole.pair_labels,
        row_starts_R=whole.row_starts,
        cu_seqlens=whole.cu_seqlens,
    )
    found, sums = model(given), model(every)
    for name in ("mlm_loss", "pair_loss", "pair_correct"):
        torch.testing.assert_close(found[name], sums[name])
    assert all(value == 0 for value in model(model_inputs(filling, CPU, 4)).values())

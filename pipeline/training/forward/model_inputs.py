"""A micro-batch of the loader -> the model's inputs, on the model's device.

A GPU needs the same shapes at every step; on a CPU, slots and lines of weight 0 are dropped.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from model.objectives.masked_language import Inputs
from pipeline.loading.micro_batch import MicroBatch


def model_inputs(batch: MicroBatch, device: torch.device, mask_id: int) -> Inputs:
    """The inputs for one forward pass; mask_id: the id of [MASK]."""
    if device.type == "cpu" and batch.cu_seqlens is not None:
        batch = without_empty_lines(batch)
    full = batch.tokens == batch.input_ids.numel()
    edge_ids = batch.edge_ids
    of_lines = None  # rows that do not share lines are lines
    if batch.cu_seqlens is not None:
        of_lines = batch.row_weights[batch.row_starts % batch.input_ids.shape[1] == 0]
        if device.type == "cuda":
            of_lines = of_lines.pin_memory()  # else the copy would wait
    batch = batch.to(device)
    used = len(batch.positions)
    if device.type == "cpu":
        used = max(1, batch.predictions)  # used slots come first; at least one keeps the shape
    return Inputs(
        input_ids_BS=batch.input_ids,
        lengths_B=None if full else batch.lengths,
        positions_K=batch.positions[:used],
        labels_K=batch.labels[:used],
        weights_K=batch.weights[:used],
        mask_id=mask_id,
        segment_ids_BS=batch.segment_ids,
        pair_labels_R=batch.pair_labels,
        row_weights_B=(
            batch.row_weights if of_lines is None else of_lines.to(device, non_blocking=True)
        ),
        draws_K=None if batch.draws is None else batch.draws[:used],
        edge_ids=edge_ids,
        row_starts_R=None if batch.cu_seqlens is None else batch.row_starts,
        cu_seqlens=batch.cu_seqlens,
    )


def without_empty_lines(batch: MicroBatch) -> MicroBatch:
    """The batch without the filling lines at its end, but with one line at least."""
    assert batch.cu_seqlens is not None
    length = batch.input_ids.shape[1]
    last = int((batch.row_starts * batch.row_weights.long()).max())
    lines = 1 + last // length
    rows = batch.row_starts < lines * length
    return replace(
        batch,
        input_ids=batch.input_ids[:lines],
        lengths=batch.lengths[:lines],
        row_starts=batch.row_starts[rows],
        row_weights=batch.row_weights[rows],
        cu_seqlens=batch.cu_seqlens[batch.cu_seqlens <= lines * length],
        segment_ids=None if batch.segment_ids is None else batch.segment_ids[:lines],
        pair_labels=None if batch.pair_labels is None else batch.pair_labels[rows],
    )

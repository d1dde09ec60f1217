"""A rank's share of the data, and a batch of it -> what the model takes, on the model's device.

A GPU wants the same shapes at every step; a CPU wants no slots that count for nothing.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from model.objectives import Inputs
from model.span_boundary import MOST_TARGETS
from pipeline.config.run import Run
from pipeline.loading.dataset import Dataset
from pipeline.loading.loader import Loader
from pipeline.loading.micro_batch import NO_EXTRAS, Batch, Extras
from pipeline.loading.order import Order, Share
from pipeline.training.cluster.ranks import Cluster
from pipeline.training.planning.plan import Plan
from pipeline.training.planning.schedule import growth


def model_inputs(batch: Batch, device: torch.device, mask_id: int) -> Inputs:
    """mask_id: the id of [MASK]."""
    if device.type == "cpu" and batch.cu_seqlens is not None:
        batch = without_empty_lines(batch)
    full = batch.tokens == batch.input_ids.numel()
    edge_ids = batch.edge_ids
    of_lines = batch.row_weights[batch.row_starts % batch.input_ids.shape[1] == 0]
    batch = batch.to(device)
    used = len(batch.positions)
    if device.type == "cpu":
        used = max(1, batch.predictions)  # used slots come first; one of weight 0 keeps the shape
    return Inputs(
        input_ids_BS=batch.input_ids,
        lengths_B=None if full else batch.lengths,
        positions_K=batch.positions[:used],
        labels_K=batch.labels[:used],
        weights_K=batch.weights[:used],
        mask_id=mask_id,
        segment_ids_BS=batch.segment_ids,
        pair_labels_R=batch.pair_labels,
        row_weights_B=of_lines.to(device, non_blocking=True),
        draws_K=None if batch.draws is None else batch.draws[:used],
        edge_ids=edge_ids,
        row_starts_R=None if batch.cu_seqlens is None else batch.row_starts,
        cu_seqlens=batch.cu_seqlens,
    )


def without_empty_lines(batch: Batch) -> Batch:
    """Without the lines of filling at the end of a batch of pieces, except for the first line."""
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


def extras_of(run: Run) -> Extras:
    """What the objective of a run asks of its training loader."""
    return {
        "mlm_sbo": Extras(most_targets=MOST_TARGETS),
        "rtd": Extras(draws_seed=run.seed),
    }.get(run.objective.kind, NO_EXTRAS)


def share_of(run: Run, plan: Plan, cluster: Cluster) -> Share:
    """What this rank has of every step."""
    return Share(
        sequences=plan.sequences,
        per_device=plan.rows,
        world_size=cluster.world_size,
        rank=cluster.rank,
        growth=growth(replace(run.batch, sequences=plan.sequences)),
    )


def train_loader(
    run: Run,
    plan: Plan,
    cluster: Cluster,
    train: tuple[Dataset, ...],
    skipped: tuple[tuple[int, int], ...] = (),
) -> Loader:
    """This rank's share of the training sequences of a run of one phase; skipped: see `Order`."""
    order = Order(
        kind=run.data.order,
        seed=run.seed,
        shard_rows=tuple(dataset.shard_rows for dataset in train),
        window=run.batch.order_window,
        skipped=skipped,
    )
    return Loader(
        train,
        order,
        share_of(run, plan, cluster),
        reader=run.data.reader,
        prefetch=2 * plan.accumulation,
        packing=run.batch.packing,
        attention=run.batch.attention,
        extras=extras_of(run),
        pin_memory=cluster.device.type == "cuda",
    )

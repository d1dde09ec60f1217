"""Micro-batches of a recipe's shape as the loader gives them, without data.

What tokens say does not matter to a device that computes nothing; shapes, pads, pinned memory and
which tensors there are do. `MicroBatch` names them.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from pipeline.config.data_settings import max_predictions
from pipeline.config.formats import PAIR_FORMATS
from pipeline.config.run import Run
from pipeline.config.training_settings import GENERATOR_KINDS
from pipeline.loading.loader import Step
from pipeline.loading.micro_batch import LossCounts, MicroBatch
from pipeline.loading.order import Located

Rows = Literal["full", "padded", "documents"]
"""Every place is a token; every row ends with pads; or documents are isolated in full rows."""
PADS = 8
"""Of a padded row."""
SAMPLES = Located(*(np.empty(0, np.int64) for _ in range(3)))
MASK_ID = 4


def micro_batch(run: Run, rows: Rows, number: int) -> MicroBatch:
    """`batch.per_device` rows; in `documents`, each row is two."""
    lines, length = run.batch.per_device, run.data.sequence_length
    slots, is_pair = lines * max_predictions(run.data), run.data.format in PAIR_FORMATS
    tokens = length - PADS * (rows == "padded")
    pieces = None
    if rows == "documents":
        pieces = pinned(2 * lines + 1, torch.int32)
        pieces.copy_(torch.arange(2 * lines + 1, dtype=torch.int32) * (length // 2))
    row_starts = pinned(lines)
    row_starts.copy_(torch.arange(lines) * length)
    return MicroBatch(
        step=0, micro_batch=number,
        input_ids=pinned((lines, length)),
        lengths=pinned(lines).fill_(tokens),
        row_starts=row_starts,
        positions=pinned(slots), labels=pinned(slots),
        weights=pinned(slots, torch.float32).fill_(1),
        row_weights=pinned(lines, torch.float32).fill_(1),
        counts=LossCounts(slots, lines * tokens, lines * is_pair, slots),
        samples=SAMPLES,
        cu_seqlens=pieces,
        segment_ids=pinned((lines, length)) if is_pair else None,
        pair_labels=pinned(lines) if is_pair else None,
        draws=pinned(slots) if run.objective.kind in GENERATOR_KINDS else None,
    )  # fmt: skip


def step(run: Run, rows: Rows, micro_batches: int) -> Step:
    """One rank's part of an optimizer step."""
    batches = [micro_batch(run, rows, number) for number in range(micro_batches)]
    counts = LossCounts(*(sum(values) for values in zip(*(batch.counts for batch in batches))))
    return Step(
        number=0, consumed=0, sequences=micro_batches * run.batch.per_device, counts=counts,
        samples=SAMPLES, accumulation=micro_batches, batches=iter(batches),
    )  # fmt: skip


def pinned(shape: int | tuple[int, int], dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, pin_memory=True)

"""Micro-batches of a recipe's shape as the loader gives them, without data.

What tokens say does not matter to a device that computes nothing; shapes, dead tokens, pinned
memory and which tensors there are do. `MicroBatch` names them.
"""

from itertools import accumulate
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

Rows = Literal["full", "short", "documents"]
"""Full rows and no dead token; rows as long as those of full sentences are on average, and the rest
dead; or documents isolated in full rows."""
SHORTER = 18
"""Tokens that a short row of 512 lacks."""
TOKENIZER = {"bos": 0, "eos": 2, "mask": 4}


def row_length(run: Run, rows: Rows) -> int:
    """Tokens of each row."""
    length = run.data.sequence_length
    return length - SHORTER * length // 512 * (rows == "short")


def row_count(run: Run, rows: Rows) -> int:
    """The rows that fit in a micro-batch."""
    return run.batch.per_device * run.data.sequence_length // row_length(run, rows)


def micro_batch(run: Run, rows: Rows, number: int) -> MicroBatch:
    """As many tokens as `batch.per_device` full rows; in `documents`, each row is two."""
    length, own, count = run.data.sequence_length, row_length(run, rows), row_count(run, rows)
    tokens, is_pair = run.batch.per_device * length, run.data.format in PAIR_FORMATS
    slots = run.batch.per_device * max_predictions(run.data)
    lengths = [own] * count
    if rows == "documents":
        lengths = [own // 2] * (2 * count)
    dead = tokens - count * own
    lengths += [length] * (dead // length) + [dead % length] * (dead % length > 0)
    bounds = pinned(len(lengths) + 1, torch.int32)
    bounds.copy_(torch.tensor([0, *accumulate(lengths)]))
    row_starts = pinned(count)
    row_starts.copy_(torch.arange(count) * own)
    return MicroBatch(
        step=0, micro_batch=number,
        input_ids=pinned(tokens),
        cu_seqlens=bounds,
        longest=length,
        row_starts=row_starts,
        positions=pinned(slots), labels=pinned(slots),
        weights=pinned(slots, torch.float32).fill_(1),
        counts=LossCounts(slots, count * own, count * is_pair, slots),
        samples=Located(*(np.zeros(count, np.int64) for _ in range(3))),
        segment_ids=pinned(tokens) if is_pair else None,
        pair_labels=pinned(count) if is_pair else None,
        draws=pinned(slots) if run.objective.kind in GENERATOR_KINDS else None,
        dropout_keys=pinned(tokens, torch.int32) if run.encoder.dropout else None,
    )  # fmt: skip


def step(run: Run, rows: Rows, micro_batches: int) -> Step:
    """One rank's part of an optimizer step."""
    batches = [micro_batch(run, rows, number) for number in range(micro_batches)]
    counts = LossCounts(*(sum(values) for values in zip(*(batch.counts for batch in batches))))
    return Step(
        number=0, consumed=0, sequences=micro_batches * row_count(run, rows), counts=counts,
        samples=batches[0].samples[:0], accumulation=micro_batches, batches=iter(batches),
    )  # fmt: skip


def pinned(size: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.zeros(size, dtype=dtype, pin_memory=True)

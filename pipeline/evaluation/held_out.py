"""Held-out sequences -> loss, accuracy, perplexity; always the same masks, in file order.

Sums over all sequences are divided once, so that neither ranks nor rows of a micro-batch change a
score. Corpora are scored separately and together (corpus_scores.py). Every objective has masked
language modelling as a part of its own, `mlm`, so models with and without a second part compare by
it, on the same sequences. ELECTRA's is its generator's. Perplexity is exp(loss) at the stored
masks; for pseudo-perplexity see `pipeline.evaluation.zero_shot`.

Legend: B rows, S sequence length, K predicted positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from model.hugging_face.conversion import Model
from model.hugging_face.loss_record import loss_entry
from model.objectives.masked_language import Inputs, LossPart, Sums
from model.objectives.span_boundary import MOST_TARGETS
from pipeline.base.errors import DataError
from pipeline.base.files import write_whole
from pipeline.base.null_device import null_entry
from pipeline.base.progress import counting
from pipeline.base.typed_json import as_json
from pipeline.cluster.process_group import device_name
from pipeline.config.formats import Attention
from pipeline.evaluation.corpus_scores import Scores, corpus_fields, language_scores
from pipeline.evaluation.device_copies import on_device
from pipeline.evaluation.loss_parts import add, pack_sums, unpack
from pipeline.evaluation.model_inputs import model_inputs
from pipeline.evaluation.zero_shot.pseudo_likelihood import (
    maskable_sequence,
    score_pseudo_perplexity,
)
from pipeline.kernels.permutation import IntArray
from pipeline.loading.dataset import Dataset
from pipeline.loading.loader import Loader
from pipeline.loading.micro_batch import BatchForm, Extras, LossCounts
from pipeline.loading.order import Order, Share
from pipeline.loading.placement import Capacity

ROWS = 32
"""Sequences per micro-batch, if one process scores a model."""
RATE = "mask_rate"
"""Field with the rate of masks that the shards do not store."""
Forward = Callable[[Inputs], Sums]
Total = Callable[[Tensor], Tensor]


class SequenceLosses(NamedTuple):
    """The loss at [MASK] of each sequence that was read, in that order."""

    mask_loss: list[float]
    """Sum of the losses of each sequence, not the mean."""
    mask_count: list[float]
    """Number of such positions of each sequence."""

    def add(self, inputs: Inputs, losses_K: Tensor, rows: int) -> None:
        """Append the losses of a micro-batch of `rows` sequences."""
        assert inputs.row_starts_R is not None
        starts_R = inputs.row_starts_R[:rows]  # zeros after them would not ascend
        row_K = torch.searchsorted(starts_R, inputs.positions_K, right=True) - 1
        shown_K = inputs.input_ids_T[inputs.positions_K]
        masked_K = (inputs.weights_K * (shown_K == inputs.mask_id)).double()
        for values, each_K in ((self.mask_loss, losses_K * masked_K), (self.mask_count, masked_K)):
            sums_R = torch.zeros(rows, dtype=torch.float64)
            # On the CPU: a GPU adds the entries of an index in no fixed order.
            values += sums_R.index_add_(0, row_K.cpu(), each_K.cpu()).tolist()


def in_file_order(
    losses: Mapping[str, SequenceLosses], datasets: Sequence[Dataset]
) -> dict[str, list[float]]:
    """Losses of the sequences of each corpus -> those of all, in the order of the shards."""
    # Iterators: a corpus with rows in several directories continues where it stopped.
    left = {corpus: zip(*own, strict=True) for corpus, own in losses.items()}
    pairs = [
        pair
        for dataset in datasets
        for corpus, part in dataset.by_corpus().items()
        for pair in islice(left[corpus], part.rows)
    ]
    return {name: [*part] for name, part in zip(SequenceLosses._fields, zip(*pairs), strict=True)}


def validation_loader(
    datasets: Sequence[Dataset],
    rows: int,
    world_size: int = 1,
    rank: int = 0,
    attention: Attention = "row",
    on_gpu: bool = False,
    most: int | None = None,
) -> Loader:
    """One pass over validation rows with their first masks, `rows` per micro-batch.

    Every rank has the same number of micro-batches, so that all ranks can stop between any two of
    them. on_gpu: all have the sizes of `rows` full rows; most: rows of each shard to read, the
    first ones, None for all.
    """
    shard_rows = [shard.sequences for dataset in datasets for shard in dataset.shards]
    skipped = () if most is None else _after(most, np.array(shard_rows))
    piece_rows = tuple(dataset.piece_rows for dataset in datasets)
    order = Order(kind="sequential", seed=0, piece_rows=piece_rows, skipped=skipped)
    # One micro-batch per rank and step, so that ranks can stop after any of them.
    share = Share(sequences=rows * world_size, per_device=rows, world_size=world_size, rank=rank)
    compressed = any(dataset.manifest.compression != "none" for dataset in datasets)
    return Loader(
        datasets,
        order,
        share,
        reader="read" if compressed else "mmap",
        prefetch=2,
        form=BatchForm(
            attention=attention,
            extras=Extras(most_targets=MOST_TARGETS, draws_seed=0),  # enough for every objective
            capacity=_full_rows(datasets, rows) if on_gpu else None,
            pin_memory=on_gpu,
        ),
    )


def _after(most: int, rows: IntArray) -> tuple[tuple[int, int], ...]:
    """[begin, end) of the rows after the first `most` of each shard; rows: of each [shards]."""
    ends = np.cumsum(rows)
    return tuple(zip((ends - rows + np.minimum(rows, most)).tolist(), ends.tolist(), strict=True))


def _full_rows(datasets: Sequence[Dataset], rows: int) -> Capacity:
    """Room for `rows` rows, however they are filled."""
    length = datasets[0].manifest.sequence_length
    slots = max(dataset.manifest.max_predictions for dataset in datasets)
    return Capacity(rows * length, rows * slots, rows, rows * length // 2)


def validation_loaders(
    datasets: Sequence[Dataset],
    rows: int,
    world_size: int = 1,
    rank: int = 0,
    attention: Attention = "row",
    on_gpu: bool = False,
) -> dict[str, Loader]:
    """`validation_loader` for each corpus of the datasets."""
    parts: dict[str, list[Dataset]] = {}
    for dataset in datasets:
        for corpus, part in dataset.by_corpus().items():
            parts.setdefault(corpus, []).append(part)
    return {
        corpus: validation_loader(own, rows, world_size, rank, attention, on_gpu)
        for corpus, own in parts.items()
    }


def evaluate(
    forward: Forward,
    parts: tuple[LossPart, ...],
    loader: Loader,
    device: torch.device,
    *,
    total: Total = lambda sums: sums,
    stopped: Callable[[], bool] = lambda: False,
    sequences: SequenceLosses | None = None,
) -> Scores | None:
    """Scores over one pass of the loader; None if `stopped` returns True before its end.

    parts: of the loss whose sums `forward` returns; total: adds up over ranks; stopped: returns the
    same on every rank; sequences: receives the losses of this rank's sequences. The caller puts
    the model in eval mode.
    """
    tokenizer = loader.datasets[0].manifest.tokenizer
    sums: Sums = {}
    counts = np.zeros(len(LossCounts._fields), np.int64)
    with torch.no_grad():
        for batch in on_device(loader.micro_batches(), device):
            if stopped():
                loader.close()
                return None
            inputs = model_inputs(batch, tokenizer)
            if sequences is not None:
                inputs = inputs._replace(each_word=True)
            found = forward(inputs)
            if sequences is not None:
                # Taken out: values of single positions do not add up over micro-batches.
                sequences.add(inputs, found.pop("word_losses"), len(batch.samples.row))
            add(sums, found)
            counts += batch.counts
    # Counts and sums in one all-reduce; counts are exact in float64.
    everywhere = total(torch.cat([torch.from_numpy(counts).double(), pack_sums(sums)]))
    reached = LossCounts(*map(int, everywhere[: len(counts)].tolist()))
    return Scores(parts, unpack(everywhere[len(counts) :], sums), reached)


def evaluate_corpora(
    forward: Forward,
    parts: tuple[LossPart, ...],
    loaders: Mapping[str, Loader],
    device: torch.device,
    sequences: dict[str, SequenceLosses] | None = None,
    **options: Any,
) -> dict[str, Scores] | None:
    """`evaluate` for each corpus; None if it was stopped.

    sequences: gets the losses of each corpus's sequences.
    """
    found = {}
    for corpus, loader in loaders.items():
        own = None if sequences is None else sequences.setdefault(corpus, SequenceLosses([], []))
        scores = evaluate(forward, parts, loader, device, sequences=own, **options)
        if scores is None:
            return None
        found[corpus] = scores
    return found


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put the model in eval mode inside, without dropout."""
    module.eval()
    try:
        yield
    finally:
        module.train()


def read_unmasked(loader: Loader, count: int) -> list[Tensor]:
    """The first `count` sequences of a pass with their original ids.

    Each is [2, length]: ids and segment ids.
    """
    found: list[Tensor] = []
    for batch in loader.micro_batches():
        ids_T = batch.input_ids.clone()
        ids_T[batch.positions[: batch.predictions]] = batch.labels[: batch.predictions]
        segments_T = torch.zeros_like(ids_T) if batch.segment_ids is None else batch.segment_ids
        both_2T = torch.stack([ids_T, segments_T])
        found += [both_2T[:, row].clone() for row in batch.rows]
        if len(found) >= count:
            break
    loader.close()  # its thread reads ahead
    return found[:count]


def score_held_out(
    model: Model,
    datasets: Sequence[Dataset],
    device: torch.device,
    attention: Attention,
    sequences: int = 0,
    per_sequence: Path | None = None,
) -> dict[str, Any]:
    """Scores on the validation rows, as fields; the model is on the device.

    sequences: how many to use for pseudo-perplexity, or 0; per_sequence: file for the losses of
    each row. Raises DataError if the rows do not fit the model or predict nothing.
    """
    _check_lengths(model, datasets)
    loaders = validation_loaders(datasets, ROWS, attention=attention)
    losses: dict[str, SequenceLosses] | None = {} if per_sequence else None
    rows = [sum(dataset.rows for dataset in loader.datasets) for loader in loaders.values()]
    with counting("evaluating", "batches", sum(-(-own // ROWS) for own in rows)) as count:

        def forward(inputs: Inputs) -> Sums:
            found: Sums = model(inputs)
            count(1)
            return found

        scores = evaluate_corpora(forward, model.parts, loaders, device, losses)
    assert scores is not None
    predictions = sum(part.counts.predictions for part in scores.values())
    if not predictions:
        raise DataError("the held-out sequences have no predicted tokens; prepare more documents")
    languages = language_scores(scores, datasets)
    result: dict[str, Any] = corpus_fields(scores, "", languages) | {"predictions": predictions}
    result |= loss_entry(model.parts)
    if per_sequence and losses:
        listed = in_file_order(losses, datasets) | null_entry(device_name(device))
        write_whole(per_sequence, as_json(listed).encode())
    if sequences:
        tokenizer = datasets[0].manifest.tokenizer
        special = {int(tokenizer[name]) for name in ("bos", "pad", "eos", "unk", "mask")}
        unmasked = read_unmasked(validation_loader(datasets, ROWS), sequences)
        maskable = [maskable_sequence(row.numpy(), special) for row in unmasked]
        result |= score_pseudo_perplexity(model, maskable, tokenizer["mask"], device)
    return result


def _check_lengths(model: Model, datasets: Sequence[Dataset]) -> None:
    """Raise DataError if sequences are too long, or ids too large, for the model."""
    for dataset in datasets:
        length, ids = dataset.manifest.sequence_length, dataset.manifest.tokenizer["size"]
        if length > model.config.positions or ids > model.config.vocab_size:
            raise DataError(
                f"{dataset.directory} has sequences of {length} and {ids:,} ids, but the model has "
                f"{model.config.positions} positions and {model.config.vocab_size:,} ids; "
                "prepare shards for this model"
            )

"""Held-out sequences -> loss, accuracy, perplexity; always the same masks, in file order.

Sums over everything divided once: neither ranks nor rows of a micro-batch change a score. Corpora
are scored apart, and together. Two perplexities are told apart. That of the frozen masks is
exp(loss) at the predicted positions. Pseudo-perplexity (Salazar et al. 2020) masks each token of a
sequence in turn, alone.

Legend: B rows, S sequence length, K predicted positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from model.objectives import MaskedLanguageModel, MaskedLanguageSums
from pipeline.data.loader import Loader
from pipeline.data.order import Order, Share
from pipeline.data.reading import Dataset
from pipeline.training.inputs import model_inputs

Forward = Callable[..., MaskedLanguageSums]
Total = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Scores:
    """What a model scores on some predicted tokens."""

    sums: tuple[float, ...]
    """Those of MaskedLanguageSums [4], over all of them."""
    predictions: int
    """Predicted tokens."""

    @classmethod
    def total(cls, parts: Iterable[Scores]) -> Scores:
        """Of all the tokens of `parts` together."""
        listed = list(parts)
        sums = tuple(map(sum, zip(*(part.sums for part in listed), strict=True)))
        return cls(sums, sum(part.predictions for part in listed))

    @property
    def loss(self) -> float:
        """Mean cross-entropy, in nats."""
        return self.sums[0] / self.predictions

    @property
    def accuracy(self) -> float:
        """Share of positions whose likeliest word was right."""
        return self.sums[1] / self.predictions

    @property
    def mask_loss(self) -> float:
        """Mean cross-entropy at the positions that showed [MASK]."""
        return self.sums[2] / self.sums[3] if self.sums[3] else math.nan

    def named(self, prefix: str) -> dict[str, float]:
        """As fields of metrics."""
        return {
            f"{prefix}loss": self.loss,
            f"{prefix}mask_loss": self.mask_loss,
            f"{prefix}accuracy": self.accuracy,
            f"{prefix}perplexity": self.perplexity,
        }

    @property
    def perplexity(self) -> float:
        """exp(loss)."""
        return math.exp(self.loss) if self.loss < 700 else math.inf


def validation_loader(
    datasets: Sequence[Dataset], rows: int, world_size: int = 1, rank: int = 0
) -> Loader:
    """One pass over validation rows with their first masks, `rows` a micro-batch."""
    order = Order(
        kind="sequential", seed=0, shard_rows=tuple(dataset.shard_rows for dataset in datasets)
    )
    share = Share(sequences=rows * world_size, per_device=rows, world_size=world_size, rank=rank)
    compressed = any(dataset.manifest.compression != "none" for dataset in datasets)
    return Loader(datasets, order, share, reader="read" if compressed else "mmap", prefetch=2)


def validation_loaders(
    datasets: Sequence[Dataset], rows: int, world_size: int = 1, rank: int = 0
) -> dict[str, Loader]:
    """`validation_loader` for each corpus of the datasets."""
    parts: dict[str, list[Dataset]] = {}
    for dataset in datasets:
        for corpus, part in dataset.by_corpus().items():
            parts.setdefault(corpus, []).append(part)
    return {corpus: validation_loader(own, rows, world_size, rank) for corpus, own in parts.items()}


def evaluate(
    forward: Forward,
    loader: Loader,
    device: torch.device,
    *,
    total: Total = lambda sums: sums,
    stopped: Callable[[], bool] = lambda: False,
) -> Scores | None:
    """Scores over one pass of the loader; None when `stopped` says so before its end.

    total: adds up over ranks; stopped: the same answer on every rank. The model is in eval mode.
    """
    mask_id = loader.datasets[0].manifest.tokenizer["mask"]
    sums = torch.zeros(5, dtype=torch.float64, device=device)
    with torch.no_grad():
        for batch in loader.micro_batches():
            if stopped():
                loader.close()
                return None
            scored = forward(*model_inputs(batch, device, mask_id))
            sums[:4] += torch.stack(scored)
            sums[4] += batch.predictions
    *found, predictions = total(sums.cpu()).tolist()
    return Scores(tuple(found), int(predictions))


def evaluate_corpora(
    forward: Forward, loaders: Mapping[str, Loader], device: torch.device, **options: Any
) -> dict[str, Scores] | None:
    """`evaluate` for each corpus; None when it was stopped in one of them."""
    found = {}
    for corpus, loader in loaders.items():
        scores = evaluate(forward, loader, device, **options)
        if scores is None:
            return None
        found[corpus] = scores
    return found


def corpus_fields(scores: Mapping[str, Scores], prefix: str) -> dict[str, float]:
    """Of all corpora together, and with several of them of each, as `loss/books`."""
    fields = Scores.total(scores.values()).named(prefix)
    if len(scores) > 1:
        for corpus, part in scores.items():
            fields |= {f"{name}/{corpus}": value for name, value in part.named(prefix).items()}
    return fields


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Without dropout inside."""
    module.eval()
    try:
        yield
    finally:
        module.train()


def pseudo_perplexity(
    model: MaskedLanguageModel, sequences: Sequence[Tensor], special: set[int], mask_id: int,
    rows: int, device: torch.device,
) -> tuple[float, int]:  # fmt: skip
    """exp of the mean loss of every token masked in turn, and how many tokens that was.

    sequences: ids [length] of each, unmasked; special: ids that are not text; rows: copies of a
    sequence, each with another token masked, that pass through the model at a time.
    """
    loss, count = 0.0, 0
    with torch.no_grad():
        for ids in sequences:
            places = torch.tensor(
                [i for i, token in enumerate(ids.tolist()) if token not in special]
            )
            for places_B in torch.split(places, rows):
                copies_BS = ids.repeat(len(places_B), 1)
                labels_B = ids[places_B]
                copies_BS[torch.arange(len(places_B)), places_B] = mask_id
                positions_B = torch.arange(len(places_B)) * len(ids) + places_B
                inputs = (copies_BS, positions_B, labels_B, torch.ones(len(places_B)))
                ids_BS, positions_K, labels_K, weights_K = (part.to(device) for part in inputs)
                sums = model(ids_BS, None, positions_K, labels_K, weights_K, mask_id)
                loss += float(sums.loss_sum)
                count += len(places_B)
    return math.exp(loss / count), count


def unmasked(loader: Loader, count: int) -> list[Tensor]:
    """The first `count` sequences [length] of a pass, with the original ids put back."""
    found: list[Tensor] = []
    for batch in loader.micro_batches():
        ids_BS = batch.input_ids.clone()
        ids_BS.view(-1)[batch.positions[: batch.predictions]] = batch.labels[: batch.predictions]
        rows = zip(ids_BS, batch.lengths.tolist(), batch.row_weights.tolist(), strict=True)
        found += [ids_S[:length].clone() for ids_S, length, weight in rows if weight]
        if len(found) >= count:
            break
    loader.close()
    return found[:count]

"""Does a trained model read the words around a [MASK]? Three losses that tell.

All are means over the same tokens: those of held-out documents whose position shows [MASK], with
the first masks. A model that knows how often each word occurs and nothing else scores the unigram
loss. One that has learned more than that, but loses nothing when the words around are put in
another order, has learned which words go together and no order.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from model.objectives import Inputs, MaskedLanguageModel, Sums
from pipeline.data.batch import Batch
from pipeline.data.reading import Dataset
from pipeline.training.evaluation import evaluate, validation_loader
from tests.pipeline.conftest import launch, torchrun

CPU = torch.device("cpu")
ROWS = 64
SPECIAL = ("bos", "pad", "eos", "unk", "mask")


def train(recipe: str, shards: Path, output: Path, seed: int, timeout: int) -> None:
    """Train as `make demo` does: two ranks of one thread each, ZeRO-1."""
    arguments = ("-m", "pipeline.train", recipe, "--data", shards, "--output", output)
    result = launch(*torchrun(*arguments, "--set", f"seed={seed}"), timeout=timeout)
    assert result.returncode == 0, result.stdout + result.stderr


def mask_loss(model: MaskedLanguageModel, shards: Path, shuffle_seed: int | None = None) -> float:
    """At [MASK]; shuffle_seed: show every row's other words in another order."""
    dataset = Dataset.open(shards, "validation")
    tokenizer = dataset.manifest.tokenizer
    special = torch.tensor([tokenizer[name] for name in SPECIAL])
    generator = torch.Generator().manual_seed(shuffle_seed or 0)

    def forward(inputs: Inputs) -> Sums:
        ids_BS = inputs.input_ids_BS
        if shuffle_seed is not None:
            ids_BS = shuffled(ids_BS, inputs.positions_K, special, generator)
        sums: Sums = model(inputs._replace(input_ids_BS=ids_BS))
        return sums

    scores = evaluate(forward, model.parts, validation_loader([dataset], ROWS), CPU)
    assert scores is not None
    return scores.metrics["mask_loss"]


def shuffled(
    ids_BS: Tensor, positions_K: Tensor, special: Tensor, generator: torch.Generator
) -> Tensor:
    """The words that are neither predicted nor special, permuted within each row."""
    movable_BS = ~torch.isin(ids_BS, special)
    movable_BS.view(-1)[positions_K] = False
    result_BS = ids_BS.clone()
    for result_S, movable_S in zip(result_BS, movable_BS, strict=True):
        places = movable_S.nonzero()[:, 0]
        result_S[places] = result_S[places[torch.randperm(len(places), generator=generator)]]
    return result_BS


def unigram_loss(shards: Path) -> float:
    """At [MASK], of the frequencies of words in the training text, one added to each count."""
    train, validation = (Dataset.open(shards, split) for split in ("train", "validation"))
    counts = np.ones(train.manifest.tokenizer["size"])
    for batch in validation_loader([train], ROWS).micro_batches():
        np.add.at(counts, text(batch), 1)
    losses = -np.log(counts / counts.sum())
    mask_id = validation.manifest.tokenizer["mask"]
    labels = np.concatenate(
        [at_mask(batch, mask_id) for batch in validation_loader([validation], ROWS).micro_batches()]
    )
    return float(losses[labels].mean())


def text(batch: Batch) -> np.ndarray:
    """The original ids of all rows, without <s> and the last </s>."""
    ids_BS = batch.input_ids.clone()
    ids_BS.view(-1)[batch.positions[: batch.predictions]] = batch.labels[: batch.predictions]
    places_S = torch.arange(ids_BS.shape[1])
    return ids_BS[(places_S > 0) & (places_S < batch.lengths[:, None] - 1)].numpy()


def at_mask(batch: Batch, mask_id: int) -> np.ndarray:
    """The original ids where [MASK] is shown."""
    used = slice(batch.predictions)
    shown_K = batch.input_ids.view(-1)[batch.positions[used]] == mask_id
    return batch.labels[used][shown_K].numpy()

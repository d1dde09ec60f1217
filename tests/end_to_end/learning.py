"""Does a trained model use the words around a [MASK]? Three losses that show it, for any family.

All are means over the same tokens: positions of held-out documents that show [MASK], with the first
masks. A model that knows only word frequencies scores the unigram loss. A model that does better,
but loses nothing when the surrounding words are shuffled, has learned which words occur together
but not their order. Words are shuffled within their segment; its ends and its set of words do not
change. For ELECTRA the generator is scored.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from model.hugging_face.conversion import Model
from model.objectives.masked_language import Inputs, Sums
from pipeline.evaluation.held_out import evaluate, validation_loader
from pipeline.loading.dataset import Dataset
from pipeline.loading.micro_batch import MicroBatch
from tests.pipeline.conftest import succeed, torchrun

CPU = torch.device("cpu")
ROWS = 64
EDGES = ("bos", "pad", "eos")
"""Ids that are never predicted."""
SPECIAL = (*EDGES, "unk", "mask")


def train(recipe: str, shards: Path, output: Path, seed: int, timeout: int) -> None:
    """Train as `make demo` does: two ranks of one thread each, ZeRO-1."""
    arguments = ("-m", "pipeline.train", recipe, "--data", shards, "--output", output)
    succeed(*torchrun(*arguments, "--set", f"seed={seed}"), timeout=timeout)


def scores(model: Model, shards: Path, shuffle_seed: int | None = None) -> dict[str, float]:
    """All metrics of held-out sequences; shuffle_seed: shuffle the words that are not predicted."""
    dataset = Dataset.open(shards, "validation")
    tokenizer = dataset.manifest.tokenizer
    special = torch.tensor([tokenizer[name] for name in SPECIAL])
    generator = torch.Generator().manual_seed(shuffle_seed or 0)

    def forward(inputs: Inputs) -> Sums:
        if shuffle_seed is not None:
            inputs = inputs._replace(input_ids_T=shuffled(inputs, special, generator))
        sums: Sums = model(inputs)
        return sums

    found = evaluate(forward, model.parts, validation_loader([dataset], ROWS), CPU)
    assert found is not None
    return found.metrics


def shuffled(inputs: Inputs, special: Tensor, generator: torch.Generator) -> Tensor:
    """The words that are neither predicted nor special, permuted within each segment."""
    movable_T = ~torch.isin(inputs.input_ids_T, special)
    movable_T[inputs.positions_K] = False
    second_T = torch.zeros_like(movable_T)
    if inputs.segment_ids_T is not None:
        second_T = inputs.segment_ids_T > 0
    result_T = inputs.input_ids_T.clone()
    for words_T in (movable_T & ~second_T, movable_T & second_T):
        for begin, end in pairwise(inputs.pieces.cu_seqlens.tolist()):
            places = begin + words_T[begin:end].nonzero()[:, 0]
            result_T[places] = result_T[places[torch.randperm(len(places), generator=generator)]]
    return result_T


def unigram_loss(shards: Path) -> float:
    """Loss at [MASK] of the word frequencies in the training text, one added to each count."""
    train, validation = (Dataset.open(shards, split) for split in ("train", "validation"))
    tokenizer = train.manifest.tokenizer
    counts = np.ones(tokenizer["size"])
    for batch in validation_loader([train], ROWS).micro_batches():
        np.add.at(counts, text(batch), 1)
    counts[[tokenizer[name] for name in EDGES]] = 1
    losses = -np.log(counts / counts.sum())
    batches = validation_loader([validation], ROWS).micro_batches()
    labels = np.concatenate([at_mask(batch, tokenizer["mask"]) for batch in batches])
    return float(losses[labels].mean())


def text(batch: MicroBatch) -> np.ndarray:
    """The original ids of all rows, including special tokens at the ends."""
    ids_T = batch.input_ids[: batch.tokens].clone()
    ids_T[batch.positions[: batch.predictions]] = batch.labels[: batch.predictions]
    return ids_T.numpy()


def at_mask(batch: MicroBatch, mask_id: int) -> np.ndarray:
    """The original ids at positions that show [MASK]."""
    used = slice(batch.predictions)
    shown_K = batch.input_ids[batch.positions[used]] == mask_id
    return batch.labels[used][shown_K].numpy()

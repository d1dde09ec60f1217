"""A network with every difficulty of a real one, for exact comparisons of optimizers.

Fused query/key/value (gated without attention, so that a key's bias has a gradient), tied
embedding, padded vocabulary rows, sizes that no number of ranks divides.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipeline.config.run import Run
from pipeline.recipes import recipe
from pipeline.training.optimizer.lamb_variants import VARIANTS
from tests.pipeline.training import plain
from tests.pipeline.training.plain import wide

VOCABULARY, PADDED, WIDTH, INNER, LENGTH = 37, 40, 13, 29, 7
QKV = ("query", "key", "value")


@dataclass(frozen=True)
class Record:
    """Has the fields of `pipeline.training.optimizer.fragments.FragmentedParameter`."""

    name: str
    parameter_name: str
    start: int
    shape: tuple[int, ...]
    decay: bool
    adapt: bool


class Toy(nn.Module):
    """ids [B, S] -> the loss of the next ids, summed over the positions of weight 1."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.embedding = nn.Embedding(PADDED, WIDTH)
        self.fused = nn.Linear(WIDTH, 3 * WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, INNER)
        self.down = nn.Linear(INNER, WIDTH)
        self.last_norm = nn.LayerNorm(WIDTH)
        self.bias = nn.Parameter(torch.zeros(PADDED))
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if "norm" not in name:
                    parameter.normal_(0, 0.3, generator=generator)
            self.embedding.weight[VOCABULARY:] = 0
            self.bias[VOCABULARY:] = 0

    def forward(self, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids)
        query, key, value = self.fused(self.norm(hidden)).chunk(3, dim=-1)
        hidden = hidden + torch.tanh(query) * torch.sigmoid(key) * value
        hidden = hidden + self.down(functional.gelu(self.up(hidden)))
        hidden = self.last_norm(hidden)
        logits = functional.linear(hidden, self.embedding.weight, self.bias)[..., :VOCABULARY]
        losses = functional.cross_entropy(
            logits[:, :-1].flatten(0, 1).to(wide(logits)), ids[:, 1:].flatten(), reduction="none"
        )
        return (losses * weights[:, 1:].flatten()).sum()


def records(model: nn.Module) -> list[Record]:
    """The toy's logical parameters: query, key and value separate, padding in none."""
    found = []
    for name, parameter in model.named_parameters():
        shape = tuple(parameter.shape)
        matrix = len(shape) > 1
        if name.startswith("fused"):
            part = (WIDTH, *shape[1:])
            for index, piece in enumerate(QKV):
                start = index * math.prod(part)
                found.append(Record(f"{piece}.{name[6:]}", name, start, part, matrix, matrix))
        elif name in ("embedding.weight", "bias"):
            found.append(Record(name, name, 0, (VOCABULARY, *shape[1:]), matrix, matrix))
        else:
            found.append(Record(name, name, 0, shape, matrix, matrix))
    return found


def toy_run(kind: str, precision: str, clip_norm: float, sequences: int, steps: int) -> Run:
    """A Run whose optimizer settings matter, with rates that move the weights far.

    kind: adamw, uncorrected for it without bias correction, stable_adamw, lamb for the paper's, or
    another variant of LAMB.
    """
    kinds = {"adamw": "adamw", "uncorrected": "adamw", "stable_adamw": "stable_adamw"}
    chosen = kinds.get(kind, "lamb")
    run = recipe("roberta_tiny")
    return replace(
        run, precision=precision, steps=steps,
        schedule=replace(run.schedule, warmup_steps=steps // 5),
        batch=replace(run.batch, sequences=sequences),
        optimizer=replace(
            run.optimizer,
            kind=chosen,
            bias_correction=kind != "uncorrected",
            lamb_variant=kind if kind in VARIANTS else "paper",
            adapt_vectors=kind in ("nvlamb", "deepspeed"),
            peak_lr=0.02 if chosen == "lamb" else 0.01, weight_decay=0.05, clip_norm=clip_norm,
        ),
    )  # fmt: skip


def batches(sequences: int, steps: int, seed: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
    """ids and weights of each step: a noisy chain of tokens, a third of which are predicted."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        ids = torch.randint(VOCABULARY, (sequences, LENGTH), generator=generator)
        for place in range(1, LENGTH):
            follows = torch.rand(sequences, generator=generator) < 0.7
            ids[:, place] = torch.where(
                follows, (3 * ids[:, place - 1] + 1) % VOCABULARY, ids[:, place]
            )
        weights = (torch.rand(sequences, LENGTH, generator=generator) < 0.35).float()
        weights[:, 1] = 1  # every rank has predictions
        yield ids, weights


def train_plainly(model: nn.Module, run: Run, chunks: int) -> plain.Weights:
    """The weights after `run`, by logical parameter."""
    return plain.train(model, run, records(model), _losses(model, run, chunks), chunks)


def distance(ours: plain.Weights, reference: plain.Weights, start: nn.Module) -> float:
    """||ours - reference|| / how far the reference moved, over all logical parameters."""
    return plain.distance(ours, reference, plain.whole(start, records(start)))


def _losses(model: nn.Module, run: Run, chunks: int) -> Iterator[Iterator[torch.Tensor]]:
    """The mean loss of each step as parts that add up to it, by chunks of its batch."""
    for ids, weights in batches(run.batch.sequences, run.steps):
        count = weights[:, 1:].sum()
        parts = zip(ids.chunk(chunks), weights.chunk(chunks), strict=True)
        yield (model(rows, marks) / count for rows, marks in parts)

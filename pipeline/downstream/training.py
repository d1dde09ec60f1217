"""A model, features and a protocol -> the fine-tuned model and its outputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from model.encoder import Encoder
from model.tasks.task_model import TaskModel, layer_depths
from pipeline.base.errors import DataError, DivergedError
from pipeline.base.progress import tracked
from pipeline.downstream.batches import (
    TaskBatch,
    by_feature,
    by_length,
    collate,
    epoch_order,
    row_length,
)
from pipeline.downstream.features import Feature
from pipeline.downstream.finetune_tasks import TaskKind
from pipeline.downstream.protocols import TuningProtocol
from pipeline.training.out_of_memory import STEPS_BETWEEN_RETURNS, return_free_memory

PREDICTED_ROWS = 64
"""Rows per batch of predictions."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Result of a training."""

    steps: int
    loss: float
    """Mean of the last epoch's batches."""


def fine_tune(
    model: TaskModel, features: Sequence[Feature], kind: TaskKind, protocol: TuningProtocol,
    seed: int, device: torch.device, name: str = "fine-tuning",
) -> Fit:  # fmt: skip
    """Train the model in place. The same seed gives the same weights on the same device.

    name: shown before the progress.
    Raises DataError if there is nothing to train on, DivergedError if the loss is not finite.
    """
    usable = [feature for feature in features if feature.targets]
    if not usable:
        raise DataError("no training example has a label; give files with labels")
    lengths = [row_length(feature) for feature in usable]
    per_epoch = math.ceil(len(usable) / protocol.rows)
    total = protocol.max_steps or max(1, round(protocol.epochs * per_epoch))
    optimizer = make_optimizer(model, protocol)
    segments = model.config.segment_types > 1
    losses: list[float] = []
    # dropout draws from the global generator; forked, so the caller's state stays as it is
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        model.train()
        steps = _steps(lengths, protocol.rows, seed, total)
        for step, chosen in enumerate(tracked(steps, name, "steps", total)):
            batch = collate([usable[index] for index in chosen], segments=segments, device=device)
            with torch.autocast(device.type, torch.bfloat16, protocol.precision == "bf16"):
                logits_NL = model(batch.inputs)
            # bfloat16 is too coarse for a loss
            loss = task_loss(logits_NL.float(), batch, kind)
            loss.backward()  # type: ignore[no-untyped-call]
            if protocol.clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), protocol.clip)
            set_rates(
                optimizer, protocol.peak_lr * follow_linear_schedule(step, total, protocol.warmup)
            )
            optimizer.step()
            optimizer.zero_grad()
            # waits for the device every step, so that a diverged run ends here and not hours later
            losses.append(loss.item())
            if not math.isfinite(losses[-1]):
                raise DivergedError(
                    f"the loss is {losses[-1]} at step {step} of seed {seed}; lower the rate with "
                    f"--learning-rate (it is {protocol.peak_lr})"
                )
            # steps differ in tokens, so the holes in malloc's heap do not fit the next tensors:
            # without this a mini's heap grew by 250 MB in 100 steps
            if device.type == "cpu" and step % STEPS_BETWEEN_RETURNS == 0:
                return_free_memory()
    model.eval()
    last = losses[-per_epoch:]
    return Fit(total, sum(last) / len(last))


def make_optimizer(model: TaskModel, protocol: TuningProtocol) -> torch.optim.AdamW:
    """AdamW with a group per depth and decay; each group's `scale` multiplies the rate."""
    names = [name for name, _ in model.named_parameters()]
    # a bag of words has no layers
    layers = model.config.layers if isinstance(model.encoder, Encoder) else 0
    depths = [0] * len(names)
    if protocol.layer_decay != 1 and layers:
        depths = [layers + 2 - depth for depth in layer_depths(names, layers)]  # 0 for the head
    groups: dict[tuple[int, bool], list[torch.nn.Parameter]] = {}
    for depth, (_, parameter) in zip(depths, model.named_parameters()):
        # biases and LayerNorm are vectors
        groups.setdefault((depth, parameter.dim() > 1), []).append(parameter)
    return torch.optim.AdamW(
        [
            {
                "params": parameters,
                "scale": protocol.layer_decay**depth,
                "weight_decay": protocol.weight_decay if decays else 0.0,
            }
            for (depth, decays), parameters in groups.items()
        ],
        lr=0.0,  # set_rates sets it before every step
        betas=(0.9, protocol.beta2),
        eps=protocol.epsilon,
        fused=True,  # one pass over the tensors of a group, not one per operation
    )


def set_rates(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["scale"]


def follow_linear_schedule(step: int, total: int, warmup: float) -> float:
    """Factor of the rate at a step counted from 0: up to 1, then down to 0."""
    first = math.ceil(warmup * total)
    if step < first:
        return step / first  # 0 at the first step, as in transformers' schedule
    return max(0.0, (total - step) / max(1, total - first))


def task_loss(logits_NL: Tensor, batch: TaskBatch, kind: TaskKind) -> Tensor:
    """The mean loss of a batch, over its examples, tagged words or windows."""
    if kind == "regression":
        return F.mse_loss(logits_NL[:, 0], batch.targets)
    targets = batch.targets.long()
    if kind == "choices":
        return F.cross_entropy(pad_features(logits_NL[:, 0], batch.counts), targets)
    if kind == "spans":
        ends = targets.view(-1, 2)
        losses = [
            F.cross_entropy(pad_features(logits_NL[:, side], batch.counts), ends[:, side])
            for side in (0, 1)
        ]
        return (losses[0] + losses[1]) / 2
    return F.cross_entropy(logits_NL, targets)


def pad_features(logits_N: Tensor, counts: Sequence[int]) -> Tensor:
    """Logits of each feature in a row of its own, -inf after its last."""
    # -inf has no share in the softmax: padding does not change a feature's loss
    return torch.nn.utils.rnn.pad_sequence(
        by_feature(logits_N, counts), batch_first=True, padding_value=-math.inf
    )


@torch.no_grad()
def predict(model: TaskModel, features: Sequence[Feature], device: torch.device) -> list[Tensor]:
    """Logits of each feature's gathered tokens [n, L], in float32 on the CPU.

    Raises DivergedError if one is not finite: the last update's loss is not known.
    """
    model.eval()
    found: list[Tensor] = [torch.empty(0)] * len(features)
    segments = model.config.segment_types > 1
    batches = by_length([row_length(feature) for feature in features], PREDICTED_ROWS)
    for chosen in tracked(batches, "predicting", "batches"):
        batch = collate([features[index] for index in chosen], segments=segments, device=device)
        logits = model(batch.inputs).float().cpu()
        if not logits.isfinite().all():
            raise DivergedError(
                "the fine-tuned model's outputs are not finite; lower the rate with --learning-rate"
            )
        for index, part in zip(chosen, by_feature(logits, batch.counts)):
            found[index] = part
    return found


def _steps(lengths: Sequence[int], rows: int, seed: int, total: int) -> Iterator[list[int]]:
    """The features of each step."""
    epoch = done = 0
    while True:
        for chosen in epoch_order(lengths, rows, seed, epoch):
            if done == total:
                return
            yield chosen
            done += 1
        epoch += 1

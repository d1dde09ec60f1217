"""The model under DeepSpeed: starts it, and hides the parts that we do not use.

DeepSpeed provides ZeRO's memory layout and communication. Loss scaling, clipping, the learning
rate, optimizers, checkpoints and logs are ours, so that they are the same at every stage.

    for batch in step.batches:
        sums = engine(inputs)
        engine.backward(loss_sum, its count in the global step)
    engine.step(learning_rate)
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from pipeline.base.null_device import NULL
from pipeline.cluster.process_group import (
    compute_device,
    deepspeed_library,
    device_name,
    quiet,
)
from pipeline.config.run import Run
from pipeline.planning.deepspeed_config import DeepSpeedFile, deepspeed_dict
from pipeline.training.optimizer.fragments import (
    FragmentedParameter,
    check_logical,
    cut_fragments,
    read_layout,
    verify_layout,
)
from pipeline.training.optimizer.optimizer import LogicalOptimizer


class ZeroEngine:
    """A model under ZeRO: forward, backward and step."""

    def __init__(
        self, wrapped: Any, optimizer: LogicalOptimizer, accumulation: int, device: torch.device
    ) -> None:
        self._wrapped = wrapped
        self.optimizer = optimizer
        self.accumulation = accumulation
        """Micro-batches of a step on each rank; may change between steps."""
        self._divisor = accumulation  # what DeepSpeed divides by, fixed when it starts
        self.device = device
        self.world_size = dist.get_world_size()
        self.rank = dist.get_rank()
        self.stage = int(wrapped.zero_optimization_stage())
        self._micro_batches = 0

    @property
    def module(self) -> torch.nn.Module:
        """The model itself; at stage 3 its weights are whole only inside `whole_weights`."""
        return self._wrapped.module  # type: ignore[no-any-return]

    @property
    def gradient_norm(self) -> float:
        """Norm of the last global gradient before clipping; not finite if it was not used."""
        return self.optimizer.gradient_norm

    @property
    def is_boundary(self) -> bool:
        """True if all micro-batches of a step have gone backward, so that `step` comes next."""
        return self._micro_batches == self.accumulation

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The model's forward pass."""
        return self._wrapped(*inputs, **named)

    def backward(self, loss_sum: torch.Tensor, global_count: int) -> None:
        """Add the gradient of loss_sum / global_count, for this rank's next micro-batch.

        loss_sum: over this micro-batch; global_count: the divisor of the mean loss, over the whole
        step and all ranks. DeepSpeed divides by micro-batches and ranks, which is undone here.
        """
        assert not self.is_boundary, "step() comes before the next micro-batch"
        last = self._micro_batches + 1 == self.accumulation
        # DeepSpeed would count to the number of its configuration; ours may change between steps.
        self._wrapped.set_gradient_accumulation_boundary(last)
        self._wrapped.backward(loss_sum * (self.world_size * self._divisor / global_count))
        self._micro_batches += 1
        if not self.is_boundary:
            self._wrapped.step()  # only advances DeepSpeed's count of micro-batches

    def step(self, learning_rate: float) -> bool:
        """Update the weights. Returns False if the gradient was not finite and nothing changed."""
        assert self.is_boundary, f"{self._micro_batches} of {self.accumulation} micro-batches done"
        before = self.optimizer.steps
        # Some stages find a gradient that is not finite before our optimizer does.
        self.optimizer.gradient_norm = math.inf
        self.optimizer.param_groups[0]["lr"] = learning_rate
        self._wrapped.step()
        self._micro_batches = 0
        return self.optimizer.steps > before

    @torch.no_grad()
    def refresh_model_weights(self) -> None:
        """Copy the fp32 weights to the model after they were overwritten. Collective."""
        zero = _zero(self._wrapped)
        if zero is None:
            return  # stage 0: they are the same tensors
        if self.stage < 3:
            zero.update_lp_params()
            return
        # Whole weights that stage 3 still holds are the old ones.
        zero._partition_all_parameters()
        for group in range(len(zero.fp16_groups)):
            zero._reassign_or_swap_out_partitioned_parameters(group)
        # Small weights are never partitioned between steps, so theirs have to be gathered again.
        if zero.persistent_parameters:
            zero.persistent_parameters[0].all_gather(zero.persistent_parameters)

    @contextlib.contextmanager
    def whole_weights(self) -> Iterator[Mapping[str, torch.nn.Parameter]]:
        """The model's parameters, whole at stage 3 too; read-only. Collective."""
        # does nothing below stage 3
        with deepspeed_library().zero.GatheredParameters(list(self.module.parameters())):
            yield dict(self.module.named_parameters())

    def close(self) -> None:
        """Release DeepSpeed's hooks and buffers."""
        self._wrapped.destroy()


def initialize_engine(
    model: torch.nn.Module,
    run: Run,
    file: DeepSpeedFile,
    logical: Sequence[FragmentedParameter],
    *,
    rows: int,
    accumulation: int,
) -> ZeroEngine:
    """Put the model, in place, under ZeRO as in `file`, with `run`'s optimizer. Collective.

    rows: most in a micro-batch; accumulation: micro-batches of a step on each rank (both from the
    loader's `Share`). Call `init_distributed` first. Raises ConfigError if the optimizer could not
    be exact.
    """
    device = compute_device()
    parameters = {
        name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }
    # A mistake in the ranges shows before DeepSpeed's start, which takes seconds.
    check_logical(logical, parameters)
    originals = {}
    if run.precision != "fp32":
        # DeepSpeed's fp32 weights are copies of its bf16 ones; ours start from the given weights.
        originals = {name: value.detach().clone() for name, value in parameters.items()}
    optimizer = LogicalOptimizer(parameters, logical, run.optimizer)
    settings = deepspeed_dict(
        run, file, parameters=sum(parameter.numel() for parameter in parameters.values()),
        rows=rows, accumulation=accumulation, world_size=dist.get_world_size(),
    )  # fmt: skip
    with quiet():
        wrapped, *_ = deepspeed_library().initialize(
            model=model, optimizer=optimizer, config=settings, dist_init_required=False
        )
    engine = ZeroEngine(wrapped, optimizer, accumulation, device)
    zero = _zero(wrapped)
    _skip_norm(zero)
    # Only now: DeepSpeed's start replaces the parameters by ranges of its flat tensors.
    layout = read_layout(parameters, _flats(optimizer, zero), zero)
    fragments = cut_fragments(layout, logical)
    optimizer.bind(layout, fragments, device)
    _start_from(originals, optimizer)
    if device_name(device) != NULL:  # which copies nothing, so that nothing could be found
        with engine.whole_weights() as weights:
            verify_layout(layout, fragments, logical, weights, device)
    return engine


def _start_from(originals: Mapping[str, torch.Tensor], optimizer: LogicalOptimizer) -> None:
    records = {record.name: record for record in optimizer.logical}
    with torch.no_grad():
        for part in optimizer.fragments() if originals else ():
            record = records[part.name]
            first = record.start + part.start
            whole = originals[record.parameter_name].reshape(-1)
            part.weight.copy_(whole[first : first + part.weight.numel()])


def _zero(wrapped: Any) -> Any:
    """DeepSpeed's optimizer that wraps ours, None at stage 0."""
    return None if isinstance(wrapped.optimizer, LogicalOptimizer) else wrapped.optimizer


def _skip_norm(zero: Any) -> None:
    """Our optimizer computes the norm; DeepSpeed's is a pass over all gradients and a wait for the
    device, and these two of its classes have no setting for it."""
    match type(zero).__name__:
        case "BF16_Optimizer":
            zero.step = functools.partial(_bf16_step, zero)
        case "DeepSpeedZeroOptimizer_Stage3":
            zero._get_norm_groups = lambda: [torch.zeros(())]  # on the host: read without waiting


@torch.no_grad()
def _bf16_step(zero: Any) -> None:
    """`BF16_Optimizer.step` without the norm."""
    gradients = zero.fp32_groups_gradient_flat_partition
    for part, gradient in zip(zero.fp32_groups_flat_partition, gradients, strict=True):
        part.grad = gradient
    zero.optimizer.step()
    zero.update_lp_params()
    zero.clear_hp_grads()


def _flats(optimizer: LogicalOptimizer, zero: Any) -> list[torch.Tensor]:
    """The flat tensors that DeepSpeed lets our optimizer update."""
    # Stage 3 lists one tensor per group; the other stages put them into our groups.
    parts = getattr(zero, "fp32_partitioned_groups_flat", None)
    if parts is None:
        parts = [flat for group in optimizer.param_groups for flat in group["params"]]
    return list(parts)

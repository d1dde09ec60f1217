"""Logical parameters -> where their elements are in one rank's fp32 tensors, at any ZeRO stage.

A layer's weight may be a slice of a fused tensor, and ZeRO cuts tensors at arbitrary elements. Two
ranks at stages 1 and 2:

    parameters   |  query rows |  key rows  |  value rows  | bias |  embedding | padded rows |
    flat tensor  |<------------- rank 0 ------------->|<---------- rank 1 ---------->|#######|
    fragments    |   query     |    key     | value.. |.. value | bias | embedding  |

At stage 0 every rank has every whole parameter; stage 3 cuts each parameter separately and leaves
the end of the last piece (#) uninitialised. Elements outside all logical parameters (padded
vocabulary rows, #) are in no fragment, so they are never read or written.

DeepSpeed's structures are read only here and patched nowhere. `verify_layout` compares them with
the model's weights, so a layout that we misread (or that DeepSpeed misreports, as 0.19.8 does with
round_robin_gradients) stops the run before its first step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
import torch.distributed as dist

from pipeline.base.errors import ConfigError


class FragmentedParameter(Protocol):
    """What the optimizer treats as one weight: a contiguous range of a flattened parameter."""

    @property
    def name(self) -> str:
        """Unique name."""

    @property
    def parameter_name(self) -> str:
        """Name of the parameter, as in `model.named_parameters()`."""

    @property
    def start(self) -> int:
        """First element, in the flattened parameter."""

    @property
    def shape(self) -> Sequence[int]:
        """Shape of the range."""

    @property
    def decay(self) -> bool:
        """True if weight decay applies."""

    @property
    def adapt(self) -> bool:
        """True if LAMB scales its update by the trust ratio."""


@dataclass(frozen=True, slots=True)
class FragmentPiece:
    """A range of one parameter's elements in a flat tensor of this rank."""

    parameter_name: str
    start: int
    """First element, in the flattened parameter."""
    flat: int
    """Index of the flat tensor."""
    offset: int
    """First element, in the flat tensor."""
    numel: int


@dataclass(frozen=True, slots=True)
class FragmentLayout:
    """This rank's fp32 weights: the flat tensors that the optimizer updates, and their elements."""

    flats: tuple[torch.Tensor, ...]
    pieces: tuple[FragmentPiece, ...]
    replicated: bool
    """True if every rank holds everything (stage 0), so nothing is summed over ranks."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A range of one logical parameter's elements in a flat tensor of this rank."""

    logical: int
    """Index of the logical parameter."""
    start: int
    """First element, in the flattened logical parameter."""
    flat: int
    offset: int
    numel: int


REFUSED: dict[str, Any] = {
    "round_robin_gradients": False,  # DeepSpeed 0.19.8 reports the order before reordering
    "has_moe_layers": False,
    "zenflow": False,
    "swap_optimizer": False,  # NVMe: the flat tensors are empty between steps
    "params_in_nvme_and_cpu": False,
    "zero_hpz_partition_size": 1,
    "model_parallel_world_size": 1,
    "low_precision_master_weights_and_grads": False,
}
"""Attributes of DeepSpeed's optimizers, with the only supported value."""


def read_layout(
    parameters: Mapping[str, torch.nn.Parameter], flats: Sequence[torch.Tensor], zero: Any
) -> FragmentLayout:
    """parameters: the trainable ones; flats: the tensors that the wrapped optimizer updates;
    zero: DeepSpeed's wrapper, None at stage 0. Raises ConfigError for an unsupported layout."""
    if zero is None:
        whole = [
            FragmentPiece(name, 0, index, 0, parameter.numel())
            for index, (name, parameter) in enumerate(parameters.items())
        ]
        return FragmentLayout(tuple(parameters.values()), tuple(whole), replicated=True)
    for attribute, supported in REFUSED.items():
        value = getattr(zero, attribute, supported)
        if value != supported:
            raise ConfigError(
                f"{attribute}={value} is not supported with our optimizers, which need each "
                f"weight's place in ZeRO's buffers; leave it at {supported}"
            )
    # DeepSpeed steps each group by itself: norms would take a collective for every group.
    if len(flats) != 1:
        raise ConfigError(
            f"ZeRO cut the model into {len(flats)} groups, our optimizers support one; "
            "do not set sub_group_size or parameter groups"
        )
    cut = _stage_3 if hasattr(zero, "fp32_partitioned_groups_flat") else _stages_1_and_2
    return FragmentLayout(tuple(flats), tuple(cut(parameters, zero)), replicated=False)


def _stages_1_and_2(
    parameters: Mapping[str, torch.nn.Parameter], zero: Any
) -> Iterator[FragmentPiece]:
    """All parameters concatenated, then cut into equal parts, one per rank."""
    for name, parameter in parameters.items():
        if not hasattr(parameter, "_hp_mapping"):
            raise ConfigError(
                f"DeepSpeed's {type(zero).__name__} does not report where {name} is; "
                "use ZeRO stage 0, 1, 2 or 3"
            )
        mapping = parameter._hp_mapping
        if mapping is not None:  # None: this rank has nothing of it
            inside, place = mapping.lp_fragment_address, mapping.get_hp_fragment_address()
            yield FragmentPiece(name, inside.start, 0, place.start, place.numel)


def _stage_3(parameters: Mapping[str, torch.nn.Parameter], zero: Any) -> Iterator[FragmentPiece]:
    """Each parameter cut into equal parts, one per rank; a rank's parts are concatenated."""
    names = {id(parameter): name for name, parameter in parameters.items()}
    offset = 0
    for parameter in zero.fp16_groups[0]:
        part = parameter.partition_numel()
        start = dist.get_rank(parameter.ds_process_group) * part
        # The last parts end in padding, which DeepSpeed never writes: it may hold anything.
        numel = min(part, parameter.ds_numel - start)
        if numel > 0:
            yield FragmentPiece(names[id(parameter)], start, 0, offset, numel)
        offset += part  # padding included


def full_numel(parameter: torch.nn.Parameter) -> int:
    """Elements of a whole parameter, even while stage 3 has partitioned it."""
    return int(getattr(parameter, "ds_numel", parameter.numel()))


def check_logical(
    logical: Sequence[FragmentedParameter], parameters: Mapping[str, torch.nn.Parameter]
) -> None:
    """Raises ConfigError unless the ranges are disjoint, in bounds and cover every parameter."""
    names = [part.name for part in logical]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"two logical parameters are called {twice}; names must differ")
    ends = dict.fromkeys(parameters, 0)
    # By start: an overlap shows against the end of the range before it.
    for part in sorted(logical, key=lambda part: part.start):
        if part.parameter_name not in ends:
            raise ConfigError(
                f"logical parameter {part.name} is part of {part.parameter_name}, which is not a "
                "trainable parameter of the model"
            )
        end = part.start + math.prod(part.shape)
        if part.start < ends[part.parameter_name]:
            raise ConfigError(
                f"logical parameter {part.name} starts at {part.start} in {part.parameter_name}, "
                f"inside another one that ends at {ends[part.parameter_name]}"
            )
        size = full_numel(parameters[part.parameter_name])
        if end > size:
            raise ConfigError(
                f"logical parameter {part.name} ends at {end}, but {part.parameter_name} at {size}"
            )
        ends[part.parameter_name] = end
    for name, end in ends.items():
        # Gaps are allowed: padded words of the vocabulary are in no logical parameter.
        if end == 0:
            raise ConfigError(
                f"parameter {name} belongs to no logical parameter and would never be trained; "
                "add one, or set requires_grad=False"
            )


def cut_fragments(layout: FragmentLayout, logical: Sequence[FragmentedParameter]) -> list[Fragment]:
    """The fragments of this rank, in the order of the flat tensors."""
    of_parameter: dict[str, list[int]] = {}
    for index, part in enumerate(logical):
        of_parameter.setdefault(part.parameter_name, []).append(index)
    found = []
    for piece in layout.pieces:
        for index in of_parameter[piece.parameter_name]:
            begin = logical[index].start
            # What the two ranges share, both in elements of the flattened parameter.
            first = max(begin, piece.start)
            last = min(begin + math.prod(logical[index].shape), piece.start + piece.numel)
            if first < last:
                offset = piece.offset + first - piece.start
                found.append(Fragment(index, first - begin, piece.flat, offset, last - first))
    return sorted(found, key=lambda fragment: (fragment.flat, fragment.offset))  # `gaps` needs it


def limit_sizes(fragments: Sequence[Fragment], most: int) -> Iterator[Fragment]:
    """The fragments, split into pieces of at most `most` elements."""
    for part in fragments:
        for first in range(0, part.numel, most):
            numel = min(most, part.numel - first)
            yield replace(part, start=part.start + first, offset=part.offset + first, numel=numel)


def view(tensor: torch.Tensor, part: Fragment) -> torch.Tensor:
    """The elements of a fragment in a flat tensor."""
    return tensor.detach().view(-1)[part.offset : part.offset + part.numel]


def gaps(
    layout: FragmentLayout, fragments: Sequence[Fragment]
) -> list[tuple[FragmentPiece, int, int]]:
    """Ranges (piece, first, last) of the flat tensors that belong to no logical parameter."""
    found = []
    for piece in layout.pieces:
        place, end = piece.offset, piece.offset + piece.numel
        for part in fragments:
            if part.flat == piece.flat and place <= part.offset < end:
                if part.offset > place:
                    found.append((piece, place, part.offset))
                place = part.offset + part.numel
        if place < end:
            found.append((piece, place, end))
    return found


@torch.no_grad()
def verify_layout(
    layout: FragmentLayout,
    fragments: Sequence[Fragment],
    logical: Sequence[FragmentedParameter],
    weights: Mapping[str, torch.Tensor],
    device: torch.device,
) -> None:
    """Raises ConfigError, on all ranks, naming a parameter whose place is wrong. Collective.

    weights: the model's own, whole; device: on which ranks can all-reduce.
    """
    # Rows: elements found, pieces that differ, nonzero elements outside. float64 counts exactly.
    found = torch.zeros(3, len(logical), dtype=torch.float64)
    for part in fragments:
        record = logical[part.logical]
        ours = view(layout.flats[part.flat], part)
        first = record.start + part.start
        theirs = weights[record.parameter_name].detach().view(-1)[first : first + part.numel]
        found[0, part.logical] += part.numel
        # bf16 rounds: compare as bf16
        found[1, part.logical] += not torch.equal(ours.to(theirs), theirs)
    # Reversed, so that the first range of each parameter is the one that stays.
    first_of = {record.parameter_name: index for index, record in reversed([*enumerate(logical)])}
    for piece, begin, end in gaps(layout, fragments):
        rest = layout.flats[piece.flat].detach().view(-1)[begin:end]
        found[2, first_of[piece.parameter_name]] += int(rest.count_nonzero())
    found = found.to(device)
    if dist.is_initialized():
        dist.all_reduce(found)
    # Replicated elements are counted by every rank.
    ranks = dist.get_world_size() if dist.is_initialized() and layout.replicated else 1
    for record, (covered, wrong, _) in zip(logical, found.T.tolist(), strict=True):
        expected = ranks * math.prod(record.shape)
        if wrong or covered != expected:
            raise ConfigError(
                f"{record.name} is not where DeepSpeed reports it ({covered:.0f} of "
                f"{expected} elements found, {wrong:.0f} pieces differ from the model's weights); "
                "this DeepSpeed version or ZeRO setting is not supported"
            )
    for record, filled in zip(logical, found[2].tolist(), strict=True):
        if filled:
            raise ConfigError(
                f"{record.parameter_name} has {filled:.0f} nonzero values outside its logical "
                "parameters; they would never be trained, so padding must start at zero"
            )

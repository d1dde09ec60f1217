"""A part of gpu_gate.py: gradients of one micro-batch beside float64 on the CPU.

At the start of a training the scores of attention are small, and so are the gradients of queries
and keys. The check at a run's start (`model.attention_check`) draws large scores; this part has
those of a model at its start, and also takes compiled layers.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from model.attention import AttentionKernel, attention_kernel
from model.layers import attend_by
from model.objectives.masked_language import Inputs
from model.pieces import pieces_of
from pipeline.planning.phase_plan import encoder_config
from pipeline.recipes import recipe
from tests.benchmarks.gpu_parts import Gate, table
from tests.benchmarks.gpu_steps import compile_layers
from tests.benchmarks.models import MASK_ID, masked_language_model

ROWS = 32
PARTS = ("query", "key", "value", "output", "feed_forward", "norm", "embeddings", "head", "other")
"""Of the weights: the first of the last ones that a name has."""


def gradients(gate: Gate) -> str:
    """Relative distances by part of the weights, eager cases first, which take no compilation."""
    exact = {
        name: gradients_of(gate, Case(name, torch.float64, None, False)) for name in gate.checked
    }
    rows = []
    for case in cases(gate):
        title = [case.recipe, str(case.dtype)[6:], str(case.kernel), str(case.compiled)]
        rows.append([*title, *gate.cells(5, partial(distances, gate, case, exact[case.recipe]))])
    columns = ["model", "type", "attention", "compiled", *PARTS]
    return (
        f"{ROWS} rows of many lengths, weights as at the start, no dropout. Relative to float64 on "
        "the CPU.\n\n" + table(columns, rows)
    )


class Case(NamedTuple):
    """How gradients are computed."""

    recipe: str
    dtype: torch.dtype
    """float64: on the CPU."""
    kernel: AttentionKernel | None
    compiled: bool


def cases(gate: Gate) -> Iterator[Case]:
    """By the kernel of a training, then by the other one that is left to a GPU."""
    for compiled in (False, True):
        for name in gate.checked:
            config = encoder_config(recipe(name))
            for dtype in (torch.float32, torch.bfloat16):
                size = config.width // config.heads
                named = attention_kernel(gate.device, dtype, size, recorded=True)
                for kernel in dict.fromkeys((named, "padded_attention")):
                    yield Case(name, dtype, kernel, compiled)


def gradients_of(gate: Gate, case: Case) -> dict[str, Tensor]:
    """Gradients by name, in float64 on the CPU."""
    run = recipe(case.recipe)
    run = replace(run, encoder=replace(run.encoder, dropout=0.0, attention_dropout=0.0))
    device = torch.device("cpu") if case.dtype == torch.float64 else gate.device
    model = masked_language_model(run).to(device, case.dtype)
    if case.kernel:
        attend_by(model, case.kernel)
    if case.compiled:
        compile_layers(gate, model)
    inputs = ragged_inputs(run.data.sequence_length, run.data.vocab_size, device)
    model(inputs)["mlm_loss"].backward()
    named = model.named_parameters()
    return {name: part.grad.double().cpu() for name, part in named if part.grad is not None}


def ragged_inputs(longest: int, vocabulary: int, device: torch.device) -> Inputs:
    """The same rows on every device: of 1 to `longest` tokens, a seventh of which are predicted."""
    drawn = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, longest + 1, (ROWS,), generator=drawn).tolist()
    ids = torch.randint(5, vocabulary, (sum(lengths),), generator=drawn)
    positions = torch.arange(3, len(ids), 7)
    labels = torch.randint(5, vocabulary, (len(positions),), generator=drawn)
    given = (part.to(device) for part in (positions, labels, torch.ones(len(positions))))
    return Inputs(ids.to(device), pieces_of(lengths, device), *given, MASK_ID)


def distances(gate: Gate, case: Case, exact: dict[str, Tensor]) -> list[str]:
    """The worst of each of PARTS."""
    found = gradients_of(gate, case)
    worst = dict.fromkeys(PARTS, 0.0)
    for name, wanted in exact.items():
        for part, own, other in parts_of(name, found[name], wanted):
            worst[part] = max(worst[part], float((own - other).norm() / other.norm()))
    return [f"{worst[part]:.1e}" for part in PARTS]


def parts_of(name: str, found: Tensor, exact: Tensor) -> list[tuple[str, Tensor, Tensor]]:
    """What of PARTS a parameter belongs to; the biases of keys have no gradient but roundings."""
    if "query_key_value" in name:
        if name.endswith("bias"):
            return []
        both = (each.split(len(exact) // 3) for each in (found, exact))
        return [*zip(PARTS[:3], *both, strict=True)]
    return [(next((part for part in PARTS[3:] if part in name), "other"), found, exact)]

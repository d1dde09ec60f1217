"""Rows that share a line are computed as if each were alone: vectors, losses, gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from model.encoder import Encoder
from model.objectives.masked_language import Inputs, MaskedLanguageModel
from model.pieces import listed, places_of, same_piece
from tests.model.conftest import MASK_ID, TOY, toy_model

LINES = [[11, 9, 20], [17, 3], [40]]
"""Lengths of the rows in each line of 40."""
ENDS = torch.tensor([0, 11, 20, 40, 57, 60, 80, 120], dtype=torch.int32)
PAD = TOY.position_offset - 1


def drawn(segments: int = 1) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Ids and segments of the rows one by one, and their predicted places."""
    torch.manual_seed(5)
    rows = [torch.randint(5, TOY.vocab_size, (n,)) for line in LINES for n in line]
    types = [(torch.arange(len(row)) > len(row) // 2).long() * (segments - 1) for row in rows]
    chosen = [torch.randperm(len(row))[: max(1, len(row) // 6)] for row in rows]
    for row, places in zip(rows, chosen, strict=True):
        row[places[0]] = MASK_ID
    return rows, types, chosen


def in_lines(rows: list[Tensor], fill: int) -> Tensor:
    """The rows concatenated, each line padded."""
    lines, given = torch.full((len(LINES), TOY.positions), fill), iter(rows)
    for line, lengths in zip(lines, LINES, strict=True):
        line[: sum(lengths)] = torch.cat([next(given) for _ in lengths])
    return lines


def starts() -> list[int]:
    return [
        number * TOY.positions + sum(line[:place])
        for number, line in enumerate(LINES)
        for place in range(len(line))
    ]


def test_pieces_by_hand() -> None:
    ends = torch.tensor([0, 2, 5, 6, 9, 12], dtype=torch.int32)
    shape = torch.Size((2, 6))
    assert places_of(ends, shape).tolist() == [[0, 1, 0, 1, 2, 0], [0, 1, 2, 0, 1, 2]]
    assert same_piece(ends, shape).shape == (2, 1, 6, 6)
    assert same_piece(ends, shape)[0, 0].int().tolist() == [
        [1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 0], [0, 0, 1, 1, 1, 0],
        [0, 0, 1, 1, 1, 0], [0, 0, 0, 0, 0, 1],
    ]  # fmt: skip
    assert listed(ends, torch.tensor([5, 6]), 6) == [(0, 0, 2), (0, 2, 3), (1, 0, 3), (1, 3, 3)]
    assert listed(ends, None, 6)[2] == (0, 5, 1)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64], ids=["pieces", "mask"])
def test_rows_in_lines_equal_the_rows_alone(kind: torch.dtype) -> None:
    """Vectors equal to 1e-6, with two segments; float64 takes the masked path and rounds less."""
    encoder = Encoder(replace(TOY, segment_types=2)).to(kind)
    rows, types, _ = drawn(2)
    lengths = torch.tensor([sum(line) for line in LINES])
    shown = encoder(in_lines(rows, PAD), lengths, in_lines(types, 0), ENDS).flatten(0, 1)
    tolerance = 1e-6 if kind == torch.float32 else 1e-12
    for row, segments, start in zip(rows, types, starts(), strict=True):
        alone = encoder(row[None], None, segments[None])[0]
        found = shown[start : start + len(row)]
        torch.testing.assert_close(found, alone, rtol=tolerance, atol=tolerance)
    leaking = encoder(in_lines(rows, PAD), lengths, in_lines(types, 0)).flatten(0, 1)
    assert (leaking[11:20] - shown[11:20]).abs().max() > 0.01


@pytest.mark.parametrize("kind", [torch.float32, torch.float64], ids=["pieces", "mask"])
def test_losses_and_gradients_equal_those_of_the_rows_alone(kind: torch.dtype) -> None:
    model, apart = toy_model().to(kind), toy_model().to(kind)
    rows, _, chosen = drawn()
    total = torch.zeros(())
    for row, places in zip(rows, chosen, strict=True):
        total = total + loss_of(apart, row[None], None, places, row[places] + 1, None)
    positions = torch.cat([places + start for places, start in zip(chosen, starts(), strict=True)])
    labels = torch.cat([row[places] + 1 for row, places in zip(rows, chosen, strict=True)])
    lengths = torch.tensor([sum(line) for line in LINES])
    together = loss_of(model, in_lines(rows, PAD), lengths, positions, labels, ENDS)
    torch.testing.assert_close(together, total, rtol=1e-6, atol=0)
    (total / len(labels)).backward()
    (together / len(labels)).backward()
    for mine, theirs in zip(model.parameters(), apart.parameters(), strict=True):
        assert mine.grad is not None and theirs.grad is not None
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-5, atol=1e-6)


def loss_of(
    model: MaskedLanguageModel,
    ids: Tensor,
    lengths: Tensor | None,
    positions: Tensor,
    labels: Tensor,
    ends: Tensor | None,
) -> Tensor:
    weights = torch.ones(len(labels))
    given = Inputs(ids, lengths, positions, labels, weights, MASK_ID, cu_seqlens=ends)
    return model(given)["mlm_loss"]

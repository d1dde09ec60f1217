"""The span boundary objective equals a slow reading of its definition, span by span."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from model.encoder import initialize
from model.hugging_face.conversion import from_hugging_face, to_hugging_face
from model.layers import Embeddings
from model.objectives.masked_language import Inputs, MaskedLanguageModel
from model.objectives.span_boundary import MOST_TARGETS, PLACE_WIDTH, SpanBoundaryHead, boundaries
from model.pieces import Pieces
from tests.model.conftest import TOY, assert_same_weights, flat, theirs_of

CLS, SEP, MASK = 0, 2, 4


def spans_of(row: list[int]) -> list[tuple[int, int]]:
    """[first, last] of each maximal run of predicted places (1) in a row."""
    spans = []
    for place, predicted in enumerate(row):
        if predicted and not row[place - 1]:
            spans.append((place, place))
        elif predicted:
            spans[-1] = (spans[-1][0], place)
    return spans


def questions(ids_T: Tensor, pieces: Pieces, predicted_T: Tensor) -> dict[int, tuple[int, ...]]:
    """Position -> left and right token and place in the span, if predicted."""
    found = {}
    for start, end in pairwise(pieces.cu_seqlens.tolist()):
        ids = ids_T[start:end].tolist()
        for first, last in spans_of(predicted_T[start:end].tolist()):
            if ids[first - 1] in (CLS, SEP) or ids[last + 1] in (CLS, SEP):
                continue
            for place in range(first, min(last + 1, first + 15)):
                found[start + place] = (start + first - 1, start + last + 1, place - first)
    return found


def toy_spans(
    seed: int, rows: int = 6, length: int = 40
) -> tuple[tuple[Tensor, Pieces], Tensor, Tensor]:
    """ids [T], pieces, predicted [T] and used slots: rows of two segments, some of them short."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, TOY.vocab_size, (rows, length), generator=generator)
    predicted = torch.zeros(rows, length, dtype=torch.int64)
    sizes = [length - 3 * row for row in range(rows)]
    for row, size in enumerate(sizes):
        ids[row, 0], ids[row, size - 1] = CLS, SEP
        predicted[row, 1 : size - 1] = (torch.rand(size - 2, generator=generator) < 0.4).long()
        if row % 2:
            ids[row, size // 2], predicted[row, size // 2] = SEP, 0
    predicted[2, 5:25] = 1  # longer than MOST_TARGETS
    predicted[2, [4, 25]] = 0
    ids[predicted.bool()] = MASK
    predicted_T, _ = flat(predicted, sizes)
    return flat(ids, sizes), predicted_T, predicted_T.nonzero()[:, 0]


def padded(given: tuple[Tensor, Pieces], used: Tensor, labels: Tensor, unused: int) -> Inputs:
    """As the loader pads them: unused slots after the used ones, all 0."""
    return Inputs(
        *given,
        positions_K=F.pad(used, (0, unused)),
        labels_K=F.pad(labels, (0, unused)),
        weights_K=F.pad(torch.ones(len(used)), (0, unused)),
        mask_id=MASK,
        edge_ids=(CLS, SEP),
    )


@pytest.mark.parametrize("seed", range(5))
def test_traps_9_boundaries_are_those_of_a_slow_reading(seed: int) -> None:
    """Adjacent spans are one; spans at an edge are skipped; 15 targets at most."""
    given, predicted, used = toy_spans(seed)
    inputs = padded(given, used, used, 7)
    found = boundaries(inputs.input_ids_T, inputs.positions_K, inputs.weights_K, (CLS, SEP))
    asked = questions(*given, predicted)
    assert len(asked) == found.weights.sum() and 20 < len(asked) < len(used) - 5
    for slot, position in enumerate(used.tolist()):
        assert found.weights[slot] == (position in asked), position
        if position in asked:
            slots = (found.left[slot], found.right[slot], found.place[slot])
            assert tuple(int(part) for part in slots) == asked[position]
    assert not found.weights[len(used) :].any()
    assert int(found.place.min()) >= 0 and int(found.place.max()) == MOST_TARGETS - 1


def test_the_head_is_that_of_the_paper() -> None:
    """Two layers of linear, GELU, LayerNorm on [left; right; place], and the tied decoder."""
    words = Embeddings(TOY)
    head = SpanBoundaryHead(TOY, words.words)
    initialize(words, TOY, 3)
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in head.parameters():
            if parameter is not words.words.weight:
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    given, predicted, used = toy_spans(1)
    hidden = torch.randn(len(given[0]), TOY.width, generator=generator, requires_grad=True)
    labels = torch.randint(5, TOY.vocab_size, (len(used),), generator=generator)
    inputs = padded(given, used, labels, 3)
    found = boundaries(given[0], inputs.positions_K, inputs.weights_K, (CLS, SEP))
    losses, *_ = head(hidden, found, inputs.labels_K)

    asked = questions(*given, predicted)
    expected = torch.zeros(())
    for position, label in zip(used.tolist(), labels):
        if position not in asked:
            continue
        left, right, place = asked[position]
        vector = torch.cat([hidden[left], hidden[right], head.places.weight[place]])
        assert vector.shape == (2 * TOY.width + PLACE_WIDTH,)
        for dense, norm in ((head.first, head.first_norm), (head.second, head.second_norm)):
            vector = F.gelu(dense.weight @ vector + dense.bias)
            vector = F.layer_norm(vector, vector.shape, norm.weight, norm.bias, 1e-5)
        logits = (words.words.weight @ vector + head.bias)[: TOY.vocab_size]
        expected = expected - logits.log_softmax(0)[label]
    loss = (losses * found.weights).sum()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)
    parts = [hidden, head.places.weight, head.first.weight, head.bias, words.words.weight]
    ours = torch.autograd.grad(loss, parts)
    for gradient, other in zip(ours, torch.autograd.grad(expected, parts)):
        torch.testing.assert_close(gradient, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_its_head_is_stored_with_any_family_s_weights(family: str) -> None:
    """It converts to transformers' names and back; transformers loads the other weights."""
    config = replace(TOY, position_offset={"bert": 0, "roberta": 2}[family])
    model = MaskedLanguageModel(config, seed=3, boundary_weight=1.0)
    state, settings = to_hugging_face(model)
    own = {name for name in state if name.startswith("span_boundary.")}
    assert len(own) == 10 and state["span_boundary.bias"].shape == (TOY.vocab_size,)
    theirs_of({name: state[name] for name in state.keys() - own}, settings)
    back = from_hugging_face(state, settings)
    assert_same_weights(model, back)

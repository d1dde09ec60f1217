"""The input and labels of ELECTRA's discriminator by hand, and sums over them by slow loops."""

import math

import pytest
import torch
from sklearn.metrics import roc_auc_score

from model.objectives.masked_language import Inputs
from model.objectives.replaced_tokens import (
    area_under_curve,
    detection_sums,
    histograms,
    replace_tokens,
    token_weights,
)
from tests.model.conftest import flat, toy_batch, with_dead


def test_traps_12_inputs_and_labels_of_the_discriminator() -> None:
    """A sampled original counts as original; kept positions are sampled too; pads have no label."""
    mask, length = 4, 6
    ids = [[0, mask, 11, mask, 13, 2], [0, 20, mask, 22, 2, 1]]
    positions = torch.tensor([1, 3, 4, length + 1, length + 2, 0, 0])
    labels = torch.tensor([10, 12, 13, 20, 21, 0, 0])
    words = torch.tensor([10, 99, 98, 20, 97, 77, 76])  # including unused slots
    weights = torch.tensor([1.0] * 5 + [0.0] * 2)
    inputs = Inputs(*flat(torch.tensor(ids)), positions, labels, weights, mask)
    shown, changed = (part.view(2, length) for part in replace_tokens(inputs, words))
    assert shown.tolist() == [[0, 10, 11, 99, 98, 2], [0, 20, 97, 22, 2, 1]]
    assert changed.tolist() == [[0, 0, 0, 1, 1, 0], [0, 0, 1, 0, 0, 0]]


def test_detection_sums_are_over_tokens_of_sequences() -> None:
    """Token weights are those given or ones, of dead tokens 0."""
    batch = toy_batch([3, 2, 4])
    assert token_weights(Inputs(**batch, mask_id=4)).tolist() == [1.0] * 9
    weights = token_weights(Inputs(**with_dead(batch, 2), mask_id=4))
    assert weights.tolist() == [1.0] * 9 + [0.0] * 2 and weights.dtype == torch.float32
    torch.manual_seed(0)
    logits = 3 * torch.randn(3, 7)
    logits[0, 0] = 0.0  # as likely as not, so not suspected
    labels = (torch.rand(3, 7) < 0.3).float()
    lengths = [7, 5, 0]  # the last row is filling
    weights = torch.tensor([[float(place < size) for place in range(7)] for size in lengths])
    loss = correct = positives = suspected = found = 0.0
    for row, size in enumerate(lengths):
        for place in range(size):
            p = 1 / (1 + math.exp(-float(logits[row, place])))
            label = bool(labels[row, place])
            loss -= math.log(p if label else 1 - p)
            correct += (p > 0.5) == label
            positives += label
            suspected += p > 0.5
            found += p > 0.5 and label
    sums = detection_sums(logits, labels, weights)
    assert float(sums.pop("rtd_loss")) == pytest.approx(loss, rel=1e-5)
    counts = {"correct": correct, "replaced": positives, "suspected": suspected, "found": found}
    assert sums == {f"rtd_{name}": count for name, count in counts.items()}


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spread", [0.02, 0.1, 1.0, 3.0])
def test_the_area_under_the_curve_is_that_of_sklearn(spread: float, kind: torch.dtype) -> None:
    """Also where all logits are nearly the same, as early in training; bfloat16 has many ties."""
    torch.manual_seed(1)
    labels = (torch.rand(4, 5000) < 0.12).float()
    logits = (torch.randn(4, 5000) * spread + labels * spread / 2 - 2).to(kind)
    weights = torch.ones(4, 5000)
    weights[3, 3000:] = 0
    real = weights.bool()
    expected = roc_auc_score(labels[real].numpy(), logits[real].float().numpy())
    found = area_under_curve(*histograms(logits, labels, weights))
    assert found == pytest.approx(expected, abs=1e-4)
    empty = histograms(torch.zeros(1, 4), torch.zeros(1, 4), torch.ones(1, 4))
    assert math.isnan(area_under_curve(*empty))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_model_that_broke_has_no_area_and_no_traceback(bad: float) -> None:
    """An infinite logit is the largest or smallest one; nan is neither."""
    logits, labels = torch.tensor([[-1.0, 0.0, bad, 1.0]]), torch.tensor([[0.0, 1.0, 1.0, 0.0]])
    found = area_under_curve(*histograms(logits, labels, torch.ones(1, 4)))
    above = {math.inf: 3, -math.inf: 1}.get(bad, math.nan)  # of four pairs
    assert found == pytest.approx(above / 4, nan_ok=True)

"""The objective: sums over used slots, and padding words that never change."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from model.objectives.masked_language import Inputs
from tests.model.conftest import LENGTHS, MASK_ID, TOY, toy_batch, toy_model


@pytest.mark.parametrize("rows", LENGTHS)
def test_sums_are_those_of_the_logits(rows: str) -> None:
    model, batch = toy_model(), toy_batch(LENGTHS[rows])
    used = batch["positions_K"][:5]
    labels = batch["labels_K"]
    logits = model.logits(batch["input_ids_T"], batch["pieces"])[used]
    assert logits.shape == (5, TOY.vocab_size)
    labels[2] = logits[2].argmax()
    losses = F.cross_entropy(logits, labels[:5], reduction="none")
    sums = model(Inputs(**batch, mask_id=MASK_ID))
    torch.testing.assert_close(sums["mlm_loss"], losses.sum(), rtol=1e-5, atol=0)
    torch.testing.assert_close(sums["mask_loss"], losses[:2].sum(), rtol=1e-5, atol=0)
    assert sums["mask_count"].item() == 2
    assert sums["mlm_correct"].item() == (logits.argmax(-1) == labels[:5]).sum().item() >= 1


def cut_slots(batch: dict[str, Any], count: int) -> Inputs:
    """The batch with only its first slots."""
    names = ("positions_K", "labels_K", "weights_K")
    return Inputs(**batch | {name: batch[name][:count] for name in names}, mask_id=MASK_ID)


def test_unused_slots_may_be_cut_off() -> None:
    model, batch = toy_model(), toy_batch(LENGTHS["short rows"])
    whole = model(Inputs(**batch, mask_id=MASK_ID))
    whole["mlm_loss"].backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]  # type: ignore[union-attr]
    model.zero_grad()
    cut = model(cut_slots(batch, 5))
    cut["mlm_loss"].backward()
    torch.testing.assert_close(whole, cut)
    for parameter, gradient in zip(model.parameters(), gradients):
        torch.testing.assert_close(parameter.grad, gradient)


def test_a_rank_may_have_no_predictions() -> None:
    model = toy_model(dropout=0.1)
    sums = model(cut_slots(toy_batch([2, 2, 2]), 0))
    sums["mlm_loss"].backward()
    assert [value.item() for value in sums.values()] == [0, 0, 0, 0]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and not parameter.grad.any(), name


def test_the_word_table_is_tied_and_its_padding_stays_zero_in_training() -> None:
    model = toy_model(dropout=0.1)
    words = model.encoder.embeddings.words.weight
    assert isinstance(model.head.words, nn.Parameter) and model.head.words is words
    assert [name for name, _ in model.named_parameters() if "words" in name] == [
        "encoder.embeddings.words.weight"
    ]
    inputs = Inputs(**toy_batch(LENGTHS["short rows"]), mask_id=MASK_ID)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    torch.manual_seed(0)
    before = model(inputs)["mlm_loss"].item()
    for _ in range(20):
        optimizer.zero_grad()
        model(inputs)["mlm_loss"].backward()
        optimizer.step()
    assert model(inputs)["mlm_loss"].item() < before / 2
    assert not words[TOY.vocab_size :].any() and not model.head.bias[TOY.vocab_size :].any()

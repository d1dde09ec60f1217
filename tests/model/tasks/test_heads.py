"""A bag of words sees no order; every head's class and layers exist in transformers."""

from __future__ import annotations

import torch
import transformers
from torch import nn

from model.tasks.heads import HEADS, TaskHead, WordBag


def test_a_bag_is_the_mean_of_a_row_and_knows_no_order() -> None:
    words = nn.Embedding(10, 4)
    bag = WordBag(words)
    ids, lengths = torch.tensor([[1, 2, 3, 0], [3, 2, 1, 5]]), torch.tensor([3, 4])
    found = bag(ids, lengths)
    torch.testing.assert_close(found[0, 0], words.weight[1:4].mean(0))
    torch.testing.assert_close(found[1, 2], words.weight[1])
    torch.testing.assert_close(bag(ids[:, :3], None)[0, 0], bag(ids[:, :3].flip(1), None)[0, 0])
    found.sum().backward()
    assert words.weight.grad is None  # the table is a copy


def test_dropout_is_where_the_design_has_it() -> None:
    torch.manual_seed(0)
    vectors = torch.ones(200, 6)
    for kind, varies in (("spans", False), ("tags", True), ("classification", True)):
        head = TaskHead(HEADS["bert"][kind], 6, 2, 0.5).train()  # type: ignore[index]
        assert (head(vectors).std(0).max() > 1e-6) == varies


def test_transformers_has_every_class() -> None:
    for designs in HEADS.values():
        for design in designs.values():
            assert hasattr(transformers, design.architecture)

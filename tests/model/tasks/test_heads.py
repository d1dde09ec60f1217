"""A bag of words sees no order; every head's class and layers exist in transformers."""

from dataclasses import replace

import torch
import transformers
from torch import nn

from model.pieces import pieces_of
from model.tasks.heads import HEADS, TaskHead, WordBag
from tests.model.conftest import TOY


def test_a_bag_is_the_mean_of_a_row_and_knows_no_order() -> None:
    words = nn.Embedding(10, 4)
    bag = WordBag(words)
    ids = torch.tensor([1, 2, 3, 3, 2, 1, 5, 7])
    found = bag(ids, pieces_of([3, 4, 1]))
    torch.testing.assert_close(found[0], words.weight[1:4].mean(0))
    torch.testing.assert_close(found[3], words.weight[[3, 2, 1, 5]].mean(0))
    torch.testing.assert_close(found[7], words.weight[7])
    others = torch.tensor([1, 2, 4, 5, 6])
    assert torch.equal(found[others], words.weight[ids[others]])
    turned = bag(ids[:3].flip(0), pieces_of([3]))
    torch.testing.assert_close(bag(ids[:3], pieces_of([3]))[0], turned[0])
    found.sum().backward()
    assert words.weight.grad is None  # the table is a copy


def test_dropout_is_where_the_design_has_it() -> None:
    torch.manual_seed(0)
    config, vectors = replace(TOY, width=6), torch.ones(200, 6)
    for kind, varies in (("spans", False), ("tags", True), ("classification", True)):
        head = TaskHead(HEADS["bert"][kind], config, 2, 0.5).train()  # type: ignore[index]
        assert (head(vectors).std(0).max() > 1e-6) == varies


def test_transformers_has_every_class() -> None:
    for designs in HEADS.values():
        for design in designs.values():
            assert hasattr(transformers, design.architecture)

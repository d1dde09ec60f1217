"""The loss and its gradient equal those of torch's cross-entropy without the padding words."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from model.linear import linear
from model.objectives import word_heads
from model.objectives.sampling import first_word, race
from model.objectives.word_heads import MaskedLanguageHead, compiled_word_losses, word_losses
from tests.model.conftest import TOY


@pytest.mark.parametrize("chunk_bytes", [1, 4 * 300 * 3, 1 << 24])
def test_equals_cross_entropy(monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    monkeypatch.setitem(word_heads.CHUNK_BYTES, "cpu", chunk_bytes)
    torch.manual_seed(0)
    hidden = torch.randn(7, 16, requires_grad=True)
    words = torch.randn(384, 16, requires_grad=True)
    bias = torch.randn(384, requires_grad=True)
    labels = torch.randint(300, (7,))
    weights = torch.tensor([1.0, 1, 0.5, 1, 0, 2, 1])
    logits = (hidden @ words.T + bias)[:, :300]
    labels[3] = logits[3].argmax()
    expected = F.cross_entropy(logits, labels, reduction="none")
    gradients = torch.autograd.grad((expected * weights).sum(), (hidden, words, bias))

    losses, found, *_ = word_losses(hidden, words, bias, labels, 300)
    torch.testing.assert_close(losses, expected, rtol=1e-6, atol=1e-6)
    assert torch.equal(found, logits.argmax(-1) == labels) and found[3]
    ours = torch.autograd.grad((losses * weights).sum(), (hidden, words, bias))
    for gradient, other in zip(ours, gradients):
        torch.testing.assert_close(gradient, other, rtol=1e-5, atol=1e-5)
    assert not ours[1][300:].any() and not ours[2][300:].any()


def test_losses_without_a_gradient_use_the_fast_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of parameters, which could have one."""
    torch.manual_seed(0)
    hidden, words = torch.randn(7, 16), torch.nn.Parameter(torch.randn(384, 16))
    bias, labels = torch.nn.Parameter(torch.randn(384)), torch.randint(300, (7,))
    expected = word_losses(hidden, words, bias, labels, 300)
    products: list[Tensor] = []

    def kept(*factors: Tensor) -> Tensor:
        products.append(linear(*factors))
        return products[-1]

    monkeypatch.setattr(word_heads, "linear", kept)
    with torch.no_grad():
        found = word_losses(hidden, words, bias, labels, 300)
    assert len(products) == 1
    torch.testing.assert_close(found[:2], tuple(part.detach() for part in expected[:2]))


def test_far_logits_stay_finite_and_bfloat16_sums_in_float32() -> None:
    hidden, words = torch.tensor([[1.0]]), torch.tensor([[1e4], [-1e4]])
    losses, *_ = word_losses(hidden, words, torch.zeros(2), torch.tensor([1]), 2)
    assert losses.tolist() == [2e4]
    torch.manual_seed(0)
    hidden, words = torch.randn(5, 16).bfloat16(), torch.randn(384, 16).bfloat16()
    labels = torch.randint(300, (5,))
    losses, *_ = word_losses(hidden, words, torch.zeros(384).bfloat16(), labels, 300)
    expected = F.cross_entropy((hidden @ words.T)[:, :300].float(), labels, reduction="none")
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, expected, rtol=1e-6, atol=1e-6)


def attracting_head() -> MaskedLanguageHead:
    """Its bias attracts the words that pad the vocabulary."""
    torch.manual_seed(0)
    head = MaskedLanguageHead(TOY, torch.nn.Embedding(TOY.padded_vocab_size, TOY.width))
    torch.nn.init.constant_(head.bias[TOY.vocab_size :], 50.0)
    return head


def test_sampling_changes_no_loss() -> None:
    head = attracting_head()
    hidden, labels = torch.randn(400, TOY.width), torch.randint(300, (400,))
    losses, found, sampled, _ = head(hidden, labels, torch.arange(400))
    for part, other in zip((losses, found), head(hidden, labels)):
        assert torch.equal(part, other)
    assert sampled is not None and int(sampled.max()) < TOY.vocab_size and not sampled.requires_grad
    waits = race(torch.arange(400), TOY.vocab_size)
    expected = first_word(head.logits(hidden).softmax(-1), waits)
    assert torch.equal(sampled, expected)


def test_compiled_losses_are_those_in_place() -> None:
    """What a GPU computes, with all that may be asked for."""
    head = attracting_head()
    hidden = torch.randn(400, TOY.width, requires_grad=True)
    labels, shown = torch.randint(300, (2, 400))
    given, weights = (labels, torch.arange(400), shown), torch.rand(400)
    parameters = (hidden, *head.parameters())
    expected = head(hidden, *given)
    wanted = torch.autograd.grad((expected.losses * weights).sum(), parameters)
    head.word_losses = compiled_word_losses("aot_eager")
    compiled = head(hidden, *given)
    torch.testing.assert_close(compiled, expected, rtol=1e-5, atol=1e-5)
    assert expected.found.any() and torch.equal(compiled.sampled, expected.sampled)
    found = torch.autograd.grad((compiled.losses * weights).sum(), parameters)
    for ours, theirs in zip(found, wanted):
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm()

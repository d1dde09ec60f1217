"""ELECTRA and what it is compared with equal a plain implementation, with their gradients."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from model.objectives.masked_language import Inputs
from model.objectives.replaced_tokens import Kind, ReplacedTokenModel, replace_tokens, token_weights
from model.objectives.replaced_words import RestoringHead, originals, restored_sums
from tests.model.conftest import LENGTHS, with_drawn_vectors
from tests.model.hugging_face.test_electra_folders import CONFIG, GENERATORS, inputs

NAMES: dict[Kind, str] = {
    "rtd": "rtd", "rtd_masked": "rtd", "replace_mlm": "words", "all_tokens_mlm": "words",
}  # fmt: skip


def model_of(kind: Kind) -> ReplacedTokenModel:
    """In float64, with every vector drawn; the embeddings of encoder and generator are apart."""
    model = ReplacedTokenModel(
        CONFIG, GENERATORS["smaller"], weight=1.0, seed=1, kind=kind, own_embeddings=True
    )
    return with_drawn_vectors(model).double().eval()


def plain_loss(model: ReplacedTokenModel, hidden: Tensor, seen: Tensor, given: Inputs) -> Tensor:
    """The sum of the encoder's part, token by token, as the paper's section 3.4 says it."""
    real = token_weights(given) > 0
    original, predicted = seen.clone(), set()
    for slot, position in enumerate(given.positions_K.tolist()):
        if given.weights_K[slot] > 0:
            predicted.add(position)
            original[position] = given.labels_K[slot]
    total = torch.zeros((), dtype=torch.float64)
    for place in range(len(seen)):
        is_asked = model.kind in ("rtd", "all_tokens_mlm") or place in predicted
        if not is_asked or not real[place]:
            continue
        if model.detection is not None:
            head = model.detection
            dense = head.dense.weight @ hidden[place] + head.dense.bias
            logit = head.output(F.gelu(dense))[0]
            probability = torch.sigmoid(logit)
            fake = bool(seen[place] != original[place])
            total = total - torch.log(probability if fake else 1 - probability)
            continue
        assert model.restoring is not None
        words = model.restoring.words
        dense = words.dense.weight @ hidden[place] + words.dense.bias
        normed = words.norm(F.gelu(dense))
        table = model.encoder.embeddings.words.weight[: CONFIG.vocab_size]
        probabilities = torch.softmax(table @ normed + words.bias[: CONFIG.vocab_size], -1)
        if model.restoring.copy is not None:
            copy = torch.sigmoid(model.restoring.copy(hidden[place])[0])
            shown_one = F.one_hot(seen[place], CONFIG.vocab_size)
            probabilities = copy * shown_one + (1 - copy) * probabilities
        total = total - torch.log(probabilities[original[place]])
    return total


@pytest.mark.parametrize("rows", LENGTHS)
@pytest.mark.parametrize("kind", NAMES)
def test_loss_and_gradients_equal_a_plain_implementation(kind: Kind, rows: str) -> None:
    """To 1e-6: ours keeps losses and the copy's logarithms in float32."""
    (given, _), model = inputs(rows), model_of(kind)
    seen = given.pieces, given.segment_ids_T
    sums = model(given)
    assert given.draws_K is not None
    with torch.no_grad():
        filler = model._generate(given.input_ids_T, *seen)
        words = model.head(filler[given.positions_K], given.labels_K, given.draws_K).sampled
    shown, changed = replace_tokens(given, words)
    expected = plain_loss(model, model.encoder(shown, *seen), shown, given)
    ours = sums[f"{NAMES[kind]}_loss"]
    assert changed.sum() >= 3 and not expected.isnan()
    torch.testing.assert_close(ours.double(), expected, rtol=1e-6, atol=1e-6)
    parameters = [p for n, p in model.named_parameters() if not n.startswith(("generator", "head"))]
    mine = torch.autograd.grad(ours, parameters, allow_unused=True)
    theirs = torch.autograd.grad(expected, parameters, allow_unused=True)
    largest = max(float(grad.abs().max()) for grad in theirs if grad is not None)
    for one, other in zip(mine, theirs, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6 * largest)


@pytest.mark.parametrize("kind", ["replace_mlm", "all_tokens_mlm"])
def test_counts_follow_the_likeliest_word_and_originals_are_the_unmasked_words(kind: Kind) -> None:
    (given, _), restoring = inputs("short rows"), model_of(kind).restoring
    assert restoring is not None
    unmasked = given.input_ids_T.clone()
    for slot, position in enumerate(given.positions_K.tolist()):
        if given.weights_K[slot] > 0:
            unmasked[position] = given.labels_K[slot]
    assert torch.equal(originals(given), unmasked)
    assert not torch.equal(unmasked, given.input_ids_T)
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        words = torch.randint(5, 300, given.labels_K.shape, generator=generator)
        words[::2] = given.labels_K[::2]
        shown, changed = replace_tokens(given, words)
        hidden = 3 * torch.randn(*shown.shape, 48, generator=generator, dtype=torch.float64)
        weights = token_weights(given)
        sums = restored_sums(restoring, hidden, shown, weights, given)
        mixed = torch.softmax(restoring.words.logits(hidden), -1)
        if restoring.copy is not None:
            copy = torch.sigmoid(restoring.copy(hidden))
            mixed = copy * F.one_hot(shown, CONFIG.vocab_size) + (1 - copy) * mixed
        right = (mixed.argmax(-1) == unmasked).float()
        if kind == "replace_mlm":
            weights = torch.zeros(len(weights)).scatter(0, given.positions_K, given.weights_K)
        assert sums["words_correct"] == (right * weights).sum()
        assert sums["words_replaced"] == changed.sum() > 0
        assert sums["words_restored"] == (right * changed).sum()


def test_a_copied_word_costs_little_and_its_gradient_stays_finite() -> None:
    """Even where a sigmoid in float32 is 0 or 1."""
    table = torch.nn.Embedding(CONFIG.padded_vocab_size, 32)
    head = RestoringHead(CONFIG, table, copies=True)
    assert head.copy is not None
    hidden = torch.randn(2, 48, requires_grad=True)
    torch.nn.init.zeros_(head.copy.weight)
    for bias in (200.0, -200.0):
        torch.nn.init.constant_(head.copy.bias, bias)
        losses, _ = head(hidden, torch.tensor([7, 8]), torch.tensor([7, 9]))
        losses.sum().backward()
        assert losses.isfinite().all() and hidden.grad is not None
        assert hidden.grad.isfinite().all()
        assert bias < 0 or (losses[0] == 0.0 and losses[1] > 190)

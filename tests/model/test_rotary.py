"""The modern design on the one encoder gives what transformers' ModernBERT gives."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from model import pieces as pieces_module
from model.config import EncoderConfig
from model.encoder import set_rotary_bases
from model.hugging_face.conversion import to_hugging_face
from model.layers import attend_by
from model.objectives.masked_language import MaskedLanguageModel
from model.pieces import Pieces, pieces_of
from model.rotary import rotate, rotation_of
from tests.model.conftest import TOY, in_rows, theirs_of, with_drawn_vectors

MODERN = replace(
    TOY, layers=4, position_offset=0, positions=100, norm="pre", gated=True, biases=False,
    position_kind="rotary", rotary_base=160_000.0, local_rotary_base=10_000.0, window=6,
    global_every=3,
)  # fmt: skip
LENGTHS = [40, 17, 100, 2, 1]


def modern_model(config: EncoderConfig = MODERN) -> MaskedLanguageModel:
    return with_drawn_vectors(MaskedLanguageModel(config, seed=1)).eval()


def drawn() -> tuple[Tensor, Pieces]:
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(5, MODERN.vocab_size, (sum(LENGTHS),), generator=generator)
    return ids, pieces_of(LENGTHS)


@pytest.mark.parametrize("kernel", ["row_attention", "padded_attention", None])
@pytest.mark.parametrize("span", [4, 64])
def test_hidden_vectors_and_gradients_are_transformers(
    kernel: str | None, span: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows shorter and longer than the window and than the spans of queries; pads in theirs."""
    monkeypatch.setattr(pieces_module, "SPAN", span)
    ours = modern_model()
    encoder = ours.encoder
    attend_by(encoder, kernel)  # type: ignore[arg-type]
    state, config = to_hugging_face(ours)
    model = theirs_of(state, config | {"attn_implementation": "eager"}).model
    ids, pieces = drawn()
    rows, mask = in_rows(ids, pieces)
    wanted = model(rows, attention_mask=mask.long()).last_hidden_state[mask]
    found = encoder(ids, pieces)
    torch.testing.assert_close(found, wanted, rtol=0, atol=2e-5)
    upstream = torch.randn(found.shape, generator=torch.Generator().manual_seed(4))
    (found * upstream).sum().backward()
    (wanted * upstream).sum().backward()
    own = encoder.embeddings.words.weight.grad
    other = model.embeddings.tok_embeddings.weight.grad
    assert own is not None and other is not None
    torch.testing.assert_close(own[: len(other)], other, rtol=1e-4, atol=1e-4)
    for layer, their in zip(encoder.layers, model.layers, strict=True):
        torch.testing.assert_close(
            layer.attention.query_key_value.weight.grad, their.attn.Wqkv.weight.grad,
            rtol=1e-4, atol=1e-4,
        )  # fmt: skip
    with torch.no_grad():
        torch.testing.assert_close(encoder(ids, pieces), wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize("layers", [3, 4])
def test_one_vector_per_piece(layers: int) -> None:
    """Of a last layer with a window, and of one without."""
    encoder = modern_model(replace(MODERN, layers=layers)).encoder
    ids, pieces = drawn()
    starts = pieces.cu_seqlens[:-1].long()
    with torch.no_grad():
        found = encoder(ids, pieces, places_P=starts)
        torch.testing.assert_close(found, encoder(ids, pieces)[starts], rtol=0, atol=2e-5)


def test_a_product_depends_on_the_distance_alone() -> None:
    torch.manual_seed(0)
    same = torch.randn(1, 2, 2, 8, dtype=torch.float64).expand(50, -1, -1, -1)
    turned = rotate(same, rotation_of(torch.arange(50), 8, 100.0, torch.float64))
    products = torch.einsum("qhk,lhk->hql", turned[:, 0], turned[:, 1])
    for distance in (0, 1, 20):
        along = products.diagonal(distance, 1, 2)
        torch.testing.assert_close(along, along[:, :1].expand_as(along), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64])
def test_turned_halves_and_gradients_are_the_formula_to_the_bit(kind: torch.dtype) -> None:
    """(a, b) -> (a cos - b sin, b cos + a sin), Su et al. 2021, eq. 34."""
    generator = torch.Generator().manual_seed(1)
    given = torch.randn(30, 2, 3, 8, generator=generator).to(kind)
    upstream = torch.randn(30, 2, 3, 8, generator=generator).to(kind)
    angles = torch.arange(30)[:, None].float() / 100.0 ** (torch.arange(0, 8, 2) / 8)
    cos, sin = (part.to(kind)[:, None, None] for part in (angles.cos(), angles.sin()))

    def formula(leaf: Tensor) -> Tensor:
        first, second = leaf.to(torch.promote_types(kind, torch.float32)).chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(kind)

    leaves = [given.clone().requires_grad_() for _ in range(2)]
    found = rotate(leaves[0], rotation_of(torch.arange(30), 8, 100.0, kind))
    wanted = formula(leaves[1])
    assert torch.equal(found, wanted)
    for turned in (found, wanted):
        turned.backward(upstream)
    assert leaves[0].grad is not None and leaves[1].grad is not None
    assert torch.equal(leaves[0].grad, leaves[1].grad)


def test_changed_bases_are_those_of_a_fresh_model() -> None:
    """A second phase goes on with longer wavelengths."""
    encoder = modern_model(replace(MODERN, rotary_base=10_000.0)).encoder
    longer = modern_model().encoder
    longer.load_state_dict(encoder.state_dict())
    ids, pieces = drawn()
    with torch.no_grad():
        assert not torch.equal(encoder(ids, pieces), longer(ids, pieces))
        set_rotary_bases(encoder, MODERN.rotary_base, MODERN.local_rotary_base)
        assert torch.equal(encoder(ids, pieces), longer(ids, pieces))
    assert encoder.config == MODERN

"""A toy model whose biases and norms are not 0 and 1, a batch with short rows, rows <-> tokens."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any, TypeVar

import pytest
import torch
import transformers
from torch import Tensor, nn

from model.config import EncoderConfig
from model.hugging_face.conversion import logical_parameters
from model.objectives.masked_language import MaskedLanguageModel
from model.objectives.replaced_tokens import ReplacedTokenModel
from model.pieces import Pieces, pieces_of

MASK_ID, PAD = 4, 1
TOY = EncoderConfig(
    vocab_size=300,
    layers=2,
    width=48,
    embedding_width=48,
    heads=4,
    feed_forward=96,
    sharing="none",
    groups=1,
    activation="gelu",
    dropout=0.0,
    attention_dropout=0.0,
    layer_norm_eps=1e-5,
    positions=40,
    position_offset=2,
    segment_types=1,
    initializer_range=0.12,
)
Drawn = TypeVar("Drawn", bound=nn.Module)
LENGTHS = {"short rows": [40, 17, 2], "full rows": [40, 40, 40]}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Toy sizes do not benefit from more threads."""
    torch.set_num_threads(1)


def with_drawn_vectors(model: Drawn, seed: int = 2) -> Drawn:
    """The model with noise on its vectors, so that none is hidden by being 0 or 1; those of padding
    words stay 0."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
        if isinstance(model, MaskedLanguageModel | ReplacedTokenModel):
            model.head.bias[model.config.vocab_size :] = 0
    return model


def toy_model(dropout: float = 0.0) -> MaskedLanguageModel:
    config = replace(TOY, dropout=dropout, attention_dropout=dropout)
    return with_drawn_vectors(MaskedLanguageModel(config, seed=1))


def theirs_of(state: Mapping[str, Tensor], config: Mapping[str, Any]) -> Any:
    """transformers' model of the class that the configuration names, with these weights."""
    kind = getattr(transformers, config["architectures"][0])
    theirs = kind(transformers.AutoConfig.for_model(**config))
    theirs.load_state_dict(state, strict=True)
    return theirs.eval()


def assert_same_weights(model: nn.Module, other: nn.Module) -> None:
    for (name, one), two in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two), name


def assert_each_number_has_one_name(model: Any) -> None:
    """But those of the words that pad the vocabulary, which are in none."""
    config, pieces = model.config, logical_parameters(model)
    assert len({piece.name for piece in pieces}) == len(pieces)
    counts = {name: torch.zeros(values.numel()) for name, values in model.named_parameters()}
    for piece in pieces:
        counts[piece.parameter_name][piece.start : piece.start + prod(piece.shape)] += 1
    words = config.padded_vocab_size - config.vocab_size
    padding = {"encoder.embeddings.words.weight": words * config.embedding_width}
    for name, count in counts.items():
        end = len(count) - (padding | {"head.bias": words}).get(name, 0)
        assert count[:end].eq(1).all() and not count[end:].any(), name


def flat(values_BS: Tensor, lengths: list[int] | None = None) -> tuple[Tensor, Pieces]:
    """The first tokens of each row, one row after another [T], and their pieces; None: all."""
    lengths = lengths or [values_BS.shape[1]] * len(values_BS)
    rows = [row[:length] for row, length in zip(values_BS, lengths, strict=True)]
    return torch.cat(rows), pieces_of(lengths)


def in_rows(values_T: Tensor, pieces: Pieces, fill: int = PAD) -> tuple[Tensor, Tensor]:
    """Pieces as rows [P, S] with pads at their end, and which places hold tokens [P, S]."""
    lengths = pieces.cu_seqlens.diff()
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    rows = torch.full(mask.shape, fill, dtype=values_T.dtype)
    rows[mask] = values_T[: int(lengths.sum())]
    return rows, mask


def toy_batch(lengths: list[int]) -> dict[str, Any]:
    """Fields of Inputs: 5 used slots, two of which show [MASK], and 3 unused slots. The first row
    must have 10 tokens and the second 16 for the slots to be in them."""
    generator = torch.Generator().manual_seed(7)
    length = TOY.positions
    ids = torch.randint(5, TOY.vocab_size, (len(lengths), length), generator=generator)
    rows, places = torch.tensor([[0, 0, 1, 1, 2], [1, 9, 1, 15, 0]])
    labels = torch.randint(5, TOY.vocab_size, (5,), generator=generator)
    ids[rows[:2], places[:2]] = MASK_ID
    ids_T, pieces = flat(ids, lengths)
    unused = torch.zeros(3, dtype=torch.int64)
    return {
        "input_ids_T": ids_T,
        "pieces": pieces,
        "positions_K": torch.cat([pieces.cu_seqlens[rows] + places, unused]),
        "labels_K": torch.cat([labels, unused]),
        "weights_K": torch.tensor([1.0] * 5 + [0.0] * 3),
    }


def with_dead(batch: dict[str, Any], count: int) -> dict[str, Any]:
    """The same batch with dead tokens at its end, in a piece of their own."""
    ids_T, pieces = batch["input_ids_T"], batch["pieces"]
    ids = torch.cat([ids_T, torch.full((count,), PAD)])
    bounds = torch.cat([pieces.cu_seqlens, torch.tensor([len(ids)], dtype=torch.int32)])
    alive = (torch.arange(len(ids)) < len(ids_T)).float()
    dead = {"input_ids_T": ids, "pieces": Pieces(bounds, max(count, pieces.longest))}
    return batch | dead | {"token_weights_T": alive}

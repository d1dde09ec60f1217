"""Growth of weights; test_initial_weights.py checks the logits of grown models."""

from dataclasses import replace

import pytest
import torch

from model.config import EncoderConfig
from model.hugging_face.conversion import to_hugging_face
from model.hugging_face.electra_folders import to_folders
from model.hugging_face.growth import EmbeddingRows, can_deepen, lengthen, source_layers
from model.hugging_face.warm_start import differences, take_over
from model.objectives.masked_language import MaskedLanguageModel
from model.objectives.replaced_tokens import ReplacedTokenModel
from tests.model.conftest import TOY
from tests.model.test_rotary import MODERN

BERT = replace(TOY, position_offset=0, segment_types=2, layers=2)
ALBERT = replace(BERT, embedding_width=16, sharing="all")


def test_a_row_is_a_token_s_own_or_the_mean_of_its_pieces() -> None:
    rows = EmbeddingRows(*map(torch.tensor, ([0, 3], [2, 0], [1, 4], [1, 2, 0], [0, 0, 1])))
    given = torch.tensor([[1.0, 2], [3, 5], [7, 9]])
    table, bias = torch.zeros(6, 2), torch.zeros(6)
    rows.copy(table, given)
    rows.copy(bias, given[:, 0])
    assert table.tolist() == [[7, 9], [5, 7], [0, 0], [1, 2], [1, 2], [0, 0]]
    assert bias.tolist() == [7, 5, 0, 1, 1, 0]


def test_layers_are_copied_in_turn_within_their_groups() -> None:
    def of(layers: int, theirs: int, groups: int = 1) -> list[int]:
        design = replace(BERT, groups=groups, sharing="none" if groups == 1 else "attention")
        ours, folder = (replace(design, layers=count) for count in (layers, theirs))
        assert can_deepen(ours, folder)
        return source_layers(ours, folder)

    assert of(6, 3) == [0, 1, 2, 0, 1, 2]
    assert of(5, 2) == [0, 1, 0, 1, 0]
    assert of(8, 4, 2) == [0, 1, 0, 1, 2, 3, 2, 3]
    # fewer layers are another architecture unless they share all
    assert not can_deepen(BERT, replace(BERT, layers=3))
    assert can_deepen(ALBERT, replace(ALBERT, layers=3))
    source = to_hugging_face(MaskedLanguageModel(BERT, seed=1))
    fewer = MaskedLanguageModel(replace(BERT, layers=1), seed=2)
    assert [each.name for each in differences(fewer, source[1])] == ["layers"]
    # windows stay where they are
    base = replace(MODERN, layers=22, global_every=3)
    assert not can_deepen(replace(base, layers=44), base)
    assert can_deepen(replace(base, layers=48), replace(base, layers=24))
    assert can_deepen(replace(base, layers=44, window=0), replace(base, window=0))


def deepened(source: MaskedLanguageModel, layers: int) -> MaskedLanguageModel:
    """A deeper model with the weights of the other's folder."""
    model = MaskedLanguageModel(replace(source.config, layers=layers), seed=2)
    folder = to_hugging_face(source)
    assert not differences(model, folder[1])
    assert take_over(model, folder, None, None) == ([], [])
    return model


def test_layers_of_a_wider_modernbert_copy_the_nearest_that_attends_as_far() -> None:
    """ModernBERT-large from base; round(22 i / 28) would swap windows in 12 layers."""
    base = replace(MODERN, layers=22, width=48, global_every=3)
    large = replace(base, layers=28, width=64)
    origins = source_layers(large, base)
    assert origins == [
        0, 1, 2, 3, 4, 4, 6, 5, 7, 6, 8, 8, 9, 10, 11, 12, 13, 13, 15, 14, 16, 15, 17, 19, 18, 20,
        20, 21,
    ]  # fmt: skip
    kinds = [(base.reach(origin), large.reach(layer)) for layer, origin in enumerate(origins)]
    assert all(theirs == ours for theirs, ours in kinds)
    assert {*origins} == {*range(22)}
    recipe = [round(22 * layer / 28) for layer in range(28)]
    assert sum(base.reach(o) != large.reach(layer) for layer, o in enumerate(recipe)) == 12


def test_a_copy_of_the_first_layer_takes_the_embeddings_norm() -> None:
    """The first layer has none before its attention."""
    source = MaskedLanguageModel(replace(MODERN, layers=2, global_every=2), seed=1)
    norm = source.encoder.embeddings.norm.weight
    with torch.no_grad():
        norm.normal_()
    first, second, third, _ = deepened(source, 4).encoder.layers
    assert torch.equal(second.feed_forward_norm.weight, norm)
    own, copied = (layer.attention.query_key_value.weight for layer in (first, third))
    assert torch.equal(copied, own)


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        (BERT, 5),
        (TOY, 3),
        (ALBERT, 12),
        (ALBERT, 1),
        (replace(ALBERT, groups=2), 6),
        (replace(ALBERT, layers=1), 3),  # the paper's table of depths starts from one layer
        (replace(ALBERT, sharing="none"), 4),
        (replace(ALBERT, sharing="attention", layers=4, groups=2), 8),
        (replace(ALBERT, sharing="feed_forward"), 4),
    ],
)
def test_every_layer_of_a_deeper_model_is_its_source(config: EncoderConfig, layers: int) -> None:
    source = MaskedLanguageModel(config, seed=1)
    model = deepened(source, layers)
    if config.sharing == "all":
        origins = list(range(config.groups))
    else:
        origins = source_layers(model.config, config)
    assert len(model.encoder.layers) == len(origins)
    for layer, origin in zip(model.encoder.layers, origins, strict=True):
        copied = source.encoder.layers[origin].parameters()
        assert all(map(torch.equal, layer.parameters(), copied))


def test_electra_s_generator_grows_too() -> None:
    small = replace(BERT, width=24, heads=2, feed_forward=96, embedding_width=48)

    def electra(layers: int, positions: int, seed: int) -> ReplacedTokenModel:
        encoders = (replace(each, layers=layers, positions=positions) for each in (BERT, small))
        return ReplacedTokenModel(*encoders, weight=50.0, seed=seed).eval()

    source = electra(2, BERT.positions, 1)
    model = electra(4, BERT.positions + 7, 2)
    detector, filler = to_folders(source)
    for theirs, generator in ((detector[1], False), (filler[1], True)):
        assert not differences(model, theirs, generator=generator, more_positions=True)
    assert take_over(model, detector, filler, None) == ([], [])
    assert model.generator and source.generator
    pairs = ((model.encoder, source.encoder), (model.generator, source.generator))
    for encoder, origin in pairs:
        for layer, parts in zip(encoder.layers, [*origin.layers] * 2, strict=True):
            assert all(map(torch.equal, layer.parameters(), parts.parameters()))
    table = model.encoder.embeddings.positions.weight
    assert torch.equal(table[BERT.positions :], table[:7])


def test_a_longer_table_repeats_rows_from_the_first_position() -> None:
    """RoBERTa's two rows before the first position stay where they are."""
    ours = replace(TOY, positions=3 * TOY.positions - 1)
    name = "roberta.embeddings.position_embeddings.weight"
    given = torch.arange(TOY.positions + 2.0)[:, None]
    old = list(range(2, TOY.positions + 2))
    found = lengthen({name: given, "other": given}, ours, TOY)
    assert found[name].flatten().tolist() == [0, 1, *old, *old, *old[:-1]]
    assert found["other"] is given
    damaged = {name: given[:-1]}
    assert lengthen(damaged, ours, TOY)[name] is damaged[name]

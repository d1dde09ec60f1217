"""Weights of transformers' own classes in an existing model of ours."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from model.config import EncoderConfig
from model.hugging_face.config_json import their_config
from model.hugging_face.conversion import to_hugging_face
from model.hugging_face.electra_folders import to_folders
from model.hugging_face.growth import EmbeddingRows
from model.hugging_face.warm_start import differences, take_over
from model.objectives.masked_language import MaskedLanguageModel
from model.objectives.replaced_tokens import ReplacedTokenModel
from tests.model.conftest import TOY, assert_same_weights, flat, with_drawn_vectors

BERT = replace(TOY, position_offset=0, segment_types=2, layer_norm_eps=1e-12)
ALBERT = replace(BERT, embedding_width=16, sharing="all")
FAMILIES = {
    "bert": (BERT, transformers.BertForMaskedLM),
    "roberta": (TOY, transformers.RobertaForMaskedLM),
    "albert": (ALBERT, transformers.AlbertForMaskedLM),
}
IDS = torch.randint(5, 300, (2, 9), generator=torch.Generator().manual_seed(0))
TOKENS = flat(IDS)


def theirs_of(config: EncoderConfig, kind: Any, pairs: bool = False) -> Any:
    """A transformers model with every number drawn."""
    theirs = kind(kind.config_class(**their_config(config, pairs))).eval()
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return theirs


def taken(theirs: Any, model: Any, rows: EmbeddingRows | None = None) -> tuple[list[str], ...]:
    found = theirs.state_dict(), theirs.config.to_dict()
    assert not differences(model, found[1])
    return take_over(model, found, None, rows)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_computes_what_the_folder_s_computes(family: str) -> None:
    config, kind = FAMILIES[family]
    theirs, model = theirs_of(config, kind), MaskedLanguageModel(config, seed=0)
    assert taken(theirs, model.eval()) == ([], [])
    with torch.no_grad():
        expected, found = theirs(IDS).logits.flatten(0, 1), model.logits(*TOKENS)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_a_head_that_the_folder_lacks_keeps_its_initialization_and_others_are_named() -> None:
    """BertForMaskedLM lacks the pair head, BertModel the word head and half of the pair head."""
    fresh = MaskedLanguageModel(BERT, seed=4, pair_weight=1.0, boundary_weight=1.0)
    before = weights(fresh)
    new, unused = taken(theirs_of(BERT, transformers.BertForMaskedLM), fresh)
    assert new[0] == ("the head of pairs of segments (bert.pooler.dense, cls.seq_relationship)")
    assert new[1].startswith("the head of span boundaries (span_boundary") and not unused
    for name, value in weights(fresh).items():
        assert torch.equal(value, before[name]) == name.startswith(("pair_", "boundary_")), name
    model = MaskedLanguageModel(BERT, seed=4, pair_weight=1.0)
    theirs = theirs_of(BERT, transformers.BertModel)
    new, unused = taken(theirs, model.eval())
    assert len(new) == 2 and new[0].startswith("the head of masked words (cls.predictions")
    assert new[1] == "the head of pairs of segments (cls.seq_relationship)"
    with torch.no_grad():
        expected = theirs(IDS).last_hidden_state.flatten(0, 1)
        found = model.encoder(*TOKENS)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert model.pair_head
    assert torch.equal(model.pair_head.pooler.weight, theirs.pooler.dense.weight)
    unused = ["bert.pooler.dense", "cls.seq_relationship"]
    theirs = theirs_of(BERT, transformers.BertForPreTraining, True)
    assert taken(theirs, MaskedLanguageModel(BERT, seed=0)) == ([], unused)


@pytest.mark.parametrize(
    "sharing",
    [
        {"sharing": "attention"}, {"sharing": "feed_forward"}, {"layers": 1},
        {"sharing": "attention", "embedding_width": 48}, {"layers": 1, "embedding_width": 48},
    ],
)  # fmt: skip
def test_copies_in_a_folder_become_one_shared_part(sharing: dict[str, Any]) -> None:
    """Its configuration does not mention shared parts, even if one whole layer is shared."""
    config = replace(ALBERT, **sharing)
    source, model = (MaskedLanguageModel(config, seed=seed).eval() for seed in (1, 2))
    state, theirs = to_hugging_face(source)
    assert not differences(model, theirs)
    assert take_over(model, (state, theirs), None, None) == ([], [])
    assert_same_weights(source, model)
    if config.layers > 1:
        part = {"attention": "attention.dense.bias", "feed_forward": "ffn.bias"}[config.sharing]
        copy = f"albert.encoder.albert_layer_groups.1.albert_layers.0.{part}"
        with pytest.raises(ValueError, match=f"{copy} differs from .*groups.0.*, but the run ties"):
            take_over(model, (state | {copy: state[copy] + 1}, theirs), None, None)
    if config.embedding_width == config.width:
        return  # a group of one layer stands for no sharing
    other = MaskedLanguageModel(replace(ALBERT, layers=2), seed=0)
    names = [difference.name for difference in differences(other, theirs)]
    assert names == ([] if config.layers == 1 else ["sharing"])  # see test_growth


def test_a_mapping_between_equal_widths_must_be_the_identity() -> None:
    """transformers' ALBERT draws one at random; the original has none, and neither have we."""
    config = replace(ALBERT, embedding_width=48)
    theirs = theirs_of(config, transformers.AlbertForMaskedLM)
    model = MaskedLanguageModel(config, seed=0).eval()
    with pytest.raises(ValueError, match="embedding_hidden_mapping_in is not the identity"):
        taken(theirs, model)
    with torch.no_grad():
        mapping = theirs.albert.encoder.embedding_hidden_mapping_in
        mapping.weight.copy_(torch.eye(48))
        mapping.bias.zero_()
        assert taken(theirs, model) == ([], [])
        expected = theirs(IDS).logits.flatten(0, 1)
        torch.testing.assert_close(model.logits(*TOKENS), expected, rtol=0, atol=1e-5)


def test_an_incomplete_or_different_encoder_is_refused() -> None:
    theirs, model = theirs_of(BERT, transformers.BertModel), MaskedLanguageModel(BERT, seed=0)
    state, config = theirs.state_dict(), theirs.config.to_dict()
    partial = {name: value for name, value in state.items() if "layer.1." not in name}
    with pytest.raises(ValueError, match=r"it lacks bert\.encoder\.layer\.1\..* and more"):
        take_over(model, (partial, config), None, None)
    with pytest.raises(ValueError, match=r"has shape \(3, 48\), the run needs \(300, 48\)"):
        words = "embeddings.word_embeddings.weight"
        take_over(model, (state | {words: state[words][:3]}, config), None, None)
    other = replace(BERT, layers=1, heads=6, dropout=0.5, attention_dropout=0.2)
    found = differences(MaskedLanguageModel(other, seed=0), config)
    assert [part.name for part in found] == ["layers", "heads"]
    with pytest.raises(ValueError, match=r"bert, .* roberta"):
        differences(MaskedLanguageModel(TOY, seed=0), config)
    assert not differences(model, config | {"attention_probs_dropout_prob": 0.7})


def test_rows_of_tokens_that_both_have_are_copied() -> None:
    """Here our id 7 is their 9, and so on; every other row keeps its initialization."""
    ours, theirs_ids = torch.tensor([0, 7, 20]), torch.tensor([0, 9, 5])
    theirs = theirs_of(BERT, transformers.BertForMaskedLM)
    model = MaskedLanguageModel(replace(BERT, vocab_size=320), seed=6)
    words, bias = model.encoder.embeddings.words.weight, model.head.bias
    expected_words, expected_bias = words.detach().clone(), bias.detach().clone()
    expected_words[ours] = theirs.bert.embeddings.word_embeddings.weight.detach()[theirs_ids]
    expected_bias[ours] = theirs.cls.predictions.bias.detach()[theirs_ids]
    none = torch.tensor([], dtype=torch.int64)
    taken(theirs, model, EmbeddingRows(ours, theirs_ids, none, none, none))
    assert torch.equal(words, expected_words) and torch.equal(bias, expected_bias)


GENERATORS = {
    "smaller": replace(BERT, width=24, heads=2, feed_forward=96, embedding_width=48, layers=1),
    "the encoder itself": None,
}


def electra(name: str, seed: int) -> ReplacedTokenModel:
    model = ReplacedTokenModel(BERT, GENERATORS[name], weight=50.0, seed=seed)
    return with_drawn_vectors(model, seed).eval()


def weights(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.named_parameters()}


@pytest.mark.parametrize("name", GENERATORS)
def test_electra_s_two_folders(name: str) -> None:
    source, model = electra(name, 1), electra(name, 2)
    detector, filler = to_folders(source)
    assert not differences(model, detector[1])
    assert not differences(model, filler[1], generator=True)
    assert take_over(model, detector, filler, None) == ([], [])
    assert_same_weights(model, source)


def test_a_new_generator() -> None:
    source, model = electra("smaller", 1), electra("smaller", 2)
    before = weights(model)
    detector, filler = to_folders(source)
    new, unused = take_over(model, detector, None, None)
    assert new[0].startswith("the generator's encoder (generator.electra.embeddings_project")
    assert new[1].startswith("the head of masked words (generator.generator_") and not unused
    for name, value in weights(model).items():
        new = name.startswith(("generator.", "head."))
        assert torch.equal(value, before[name]) == new, name
    wrong = filler[0] | {"electra.embeddings.LayerNorm.bias": torch.ones(48)}
    with pytest.raises(ValueError, match="differs between generator and discriminator"):
        take_over(model, detector, (wrong, filler[1]), None)

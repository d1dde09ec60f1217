"""Models and folders of all families with a masked-language head against transformers."""

from dataclasses import replace
from math import prod
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from model.config import EncoderConfig
from model.hugging_face.config_json import their_config
from model.hugging_face.conversion import (
    Model,
    family,
    from_hugging_face,
    logical_parameters,
    to_hugging_face,
)
from model.hugging_face.families import ALBERT, BERT, FAMILIES, ROBERTA, changes_to_fit, family_of
from model.objectives.masked_language import Inputs, MaskedLanguageModel
from model.objectives.replaced_tokens import ReplacedTokenModel
from model.pieces import Pieces
from pipeline.evaluation.loss_parts import loss_sum
from pipeline.loading.micro_batch import LossCounts
from tests.model.conftest import (
    LENGTHS,
    MASK_ID,
    TOY,
    flat,
    in_rows,
    theirs_of,
    toy_batch,
    with_drawn_vectors,
)
from tests.pipeline.training.step_trace import StepTrace

BASE = replace(TOY, position_offset=0, segment_types=2, layers=4)
NARROW = replace(BASE, embedding_width=16)
CONFIGS = {
    "roberta": TOY,
    "bert": BASE,
    "bert, gelu_tanh": replace(BASE, activation="gelu_tanh"),
    "albert v1": replace(NARROW, sharing="all"),
    "albert v2": replace(NARROW, sharing="all", activation="gelu_tanh"),
    "albert, two groups": replace(NARROW, sharing="all", groups=2),
    "albert, nothing shared": NARROW,
    "albert, attention": replace(NARROW, sharing="attention"),
    "albert, wide embeddings": replace(BASE, sharing="all"),
    "albert, wide embeddings in a group per layer": replace(BASE, sharing="all", groups=4),
    "albert, wide embeddings, attention": replace(BASE, sharing="attention", groups=2),
    "albert, wide embeddings, feed_forward": replace(BASE, sharing="feed_forward"),
    "albert, feed_forward in two groups": replace(NARROW, sharing="feed_forward", groups=2),
}
CASES = [
    (name, pairs, rows)
    for name in CONFIGS
    for pairs, rows in ((False, "short rows"), (name != "roberta", "full rows"))
]
"""Names, whether there is a pair head, which RoBERTa lacks, and rows."""
PAIR_LABELS = torch.tensor([1, 0, -1])


def model_of(config: EncoderConfig, pairs: bool) -> MaskedLanguageModel:
    model = MaskedLanguageModel(config, seed=1, pair_weight=float(pairs))
    return with_drawn_vectors(model).eval()


def inputs(lengths: list[int]) -> Inputs:
    batch = toy_batch(lengths)
    segments = (torch.arange(TOY.positions) >= torch.tensor([[7], [9], [1]])).long()
    return Inputs(
        **batch,
        mask_id=MASK_ID,
        segment_ids_T=flat(segments, lengths)[0],
        row_starts_R=batch["pieces"].cu_seqlens[:-1].long(),
        pair_labels_R=PAIR_LABELS,
    )


def call(theirs: Any, given: Inputs) -> tuple[Tensor, Tensor | None]:
    """Logits of words [T, V] and of pair labels, computed in padded rows."""
    assert given.segment_ids_T is not None
    ids, mask = in_rows(given.input_ids_T, given.pieces)
    segments, _ = in_rows(given.segment_ids_T, given.pieces)
    if theirs.config.type_vocab_size == 1:
        segments = torch.zeros_like(segments)
    found = theirs(ids, attention_mask=mask.long(), token_type_ids=segments)
    if "logits" in found:
        return found.logits[mask], None
    pair = found.sop_logits if "sop_logits" in found else found.seq_relationship_logits
    return found.prediction_logits[mask], pair


def losses_of(words: Tensor, labels: Tensor | None, given: Inputs) -> list[Tensor]:
    """Sums of transformers' losses."""
    used = given.positions_K[:5]
    found = [F.cross_entropy(words[used], given.labels_K[:5], reduction="sum")]
    if labels is not None:
        pairs = F.cross_entropy(labels, PAIR_LABELS, reduction="sum", ignore_index=-1)
        found.append(pairs)
    return found


@pytest.mark.parametrize(("name", "pairs", "rows"), [*CASES, ("bert", True, "short rows")])
def test_logits_losses_and_gradients_are_transformers_own_and_weights_return(
    name: str, pairs: bool, rows: str
) -> None:
    """The gradient of a shared parameter is the sum over its copies, as which it is exported."""
    model, given = model_of(CONFIGS[name], pairs), inputs(LENGTHS[rows])
    state, config = to_hugging_face(model)
    theirs = theirs_of(state, config)
    seen = given.input_ids_T, given.pieces, given.segment_ids_T
    words, labels = call(theirs, given)
    assert words.std() > 0.3
    with torch.no_grad():
        torch.testing.assert_close(model.logits(*seen), words.detach(), rtol=0, atol=1e-5)
    sums = model(given)
    if labels is not None:
        assert pairs and labels.std() > 0.05
        torch.testing.assert_close(model.pair_logits(*seen), labels, rtol=0, atol=1e-5)
        assert sums["pair_correct"] == (labels.argmax(-1) == PAIR_LABELS)[:2].sum()
    expected = losses_of(words, labels, given)
    found = [sums[f"{part.name}_loss"] for part in model.parts]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
    torch.stack(expected).sum().backward()
    torch.stack(found).sum().backward()
    compare_gradients(model, {name: each.grad for name, each in theirs.named_parameters()})
    back = from_hugging_face(state, config)
    again, settings = to_hugging_face(back)
    assert settings == config and again.keys() == state.keys()
    assert all(torch.equal(again[name], state[name]) for name in state)
    if CONFIGS[name].sharing in ("none", "all"):
        assert back.config == CONFIGS[name]


def compare_gradients(model: MaskedLanguageModel, gradients: dict[str, Any]) -> None:
    """gradients: transformers', by name."""
    config = model.config
    parts = {"attention": ("attention.",), "feed_forward": ("ffn", "full_layer")}
    ours = dict(model.named_parameters())
    for piece in logical_parameters(model):
        grad = ours[piece.parameter_name].grad
        assert grad is not None
        mine = grad.flatten()[piece.start : piece.start + prod(piece.shape)].view(piece.shape)
        expected = gradients.pop(piece.name)
        module = piece.name.split("albert_layers.0.")[-1]
        if module != piece.name and module.startswith(parts.get(config.sharing, ("-",))):
            first = int(piece.name.split("layer_groups.")[1].split(".")[0])
            size = config.layers // config.groups
            for layer in range(first + 1, first + size):
                copy = piece.name.replace(f"groups.{first}.", f"groups.{layer}.")
                expected = expected + gradients.pop(copy)
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-4, msg=piece.name)
    if config.embedding_width == config.width:  # theirs always has a mapping
        gradients = {name: each for name, each in gradients.items() if "mapping_in" not in name}
    assert not gradients, "each of their parameters is one of ours"


def test_old_names_and_unused_poolers_are_known() -> None:
    """bert-base-uncased has gamma and beta, albert-base-v2 a pooler without a classifier."""
    state, config = to_hugging_face(model_of(CONFIGS["bert"], True))
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("Norm.bias", "Norm.beta"): value
        for name, value in state.items()
    }
    assert old.keys() != state.keys()
    assert from_hugging_face(old, config).pair_head is not None
    state, config = to_hugging_face(model_of(CONFIGS["albert v2"], True))
    lacking = {name: value for name, value in state.items() if "sop_classifier" not in name}
    found = from_hugging_face(lacking, config)
    assert found.pair_head is None
    assert their_config(found.config, False)["architectures"] == ["AlbertForMaskedLM"]


def test_traps_26_the_pooler_is_optimized_and_padding_words_are_cut_off() -> None:
    """Some systems skip the pooler, and then the head after it does not learn."""
    pieces = {piece.name: piece for piece in logical_parameters(model_of(CONFIGS["bert"], True))}
    assert pieces["bert.pooler.dense.weight"].decay and pieces["bert.pooler.dense.weight"].adapt
    assert not pieces["bert.pooler.dense.bias"].decay
    assert {"cls.seq_relationship.weight", "cls.seq_relationship.bias"} <= pieces.keys()
    state, config = to_hugging_face(model_of(CONFIGS["albert v2"], True))
    rows = [len(value) for value in state.values() if len(value) > 100]
    assert config["vocab_size"] == 300 and rows == [300] * 4


def test_a_family_follows_from_configuration_and_heads() -> None:
    assert family_of(TOY, False) is ROBERTA
    assert family(model_of(CONFIGS["bert"], True)) is BERT
    assert family(model_of(CONFIGS["albert v1"], False)) is ALBERT
    assert len({row.model_type for row in FAMILIES}) == len(FAMILIES)


def test_embeddings_as_wide_as_hidden_vectors_have_the_identity_as_mapping() -> None:
    """transformers' ALBERT always maps embeddings; the original has no mapping at equal widths."""
    model = model_of(CONFIGS["albert, wide embeddings"], True)
    assert not any("projection" in name for name, _ in model.named_parameters())
    state, config = to_hugging_face(model)
    mapping = "albert.encoder.embedding_hidden_mapping_in"
    assert torch.equal(state[f"{mapping}.weight"], torch.eye(48))
    assert not state[f"{mapping}.bias"].any() and config["embedding_size"] == 48
    assert from_hugging_face(state, config).config == model.config
    for name, other in (("weight", 2 * torch.eye(48)), ("bias", torch.ones(48))):
        with pytest.raises(ValueError, match="mapping_in is not the identity: with embedding_size"):
            from_hugging_face(state | {f"{mapping}.{name}": other}, config)


@pytest.mark.parametrize(
    ("config", "pairs", "message"),
    [
        (TOY, True, "position_offset=2, .* and a pair head"),
        (replace(TOY, activation="gelu_tanh"), False, "activation=gelu_tanh"),
        (replace(TOY, sharing="all"), False, "embedding_width=48 of 48, sharing=all"),
        (replace(NARROW, position_offset=1), False, "embedding_width=16 of 48"),
    ],
)
def test_a_model_without_a_class_has_one_after_the_changes_of_any_family(
    config: EncoderConfig, pairs: bool, message: str
) -> None:
    with pytest.raises(ValueError, match=f"no family of transformers has a class for .*{message}"):
        family_of(config, pairs)
    families = changes_to_fit(config, pairs)
    assert set(families) == {row.model_type for row in FAMILIES}
    for name, changes in families.items():
        head = changes.pop("pairs", pairs)
        assert family_of(replace(config, **changes), head).model_type == name


@pytest.mark.parametrize("kind", ["bert", "electra", "spanbert"])
@pytest.mark.parametrize("rows", ["full", "mixed", "packed"])
def test_no_micro_batch_waits_for_the_device(kind: str, rows: str) -> None:
    """Forward and backward on a device that has no values to read, by the path of a GPU."""
    config = replace(BASE, dropout=0.1, attention_dropout=0.1)
    if kind == "electra":
        model: Model = ReplacedTokenModel(config, replace(config, width=24), weight=50.0, seed=0)
    else:
        head = "pair_weight" if kind == "bert" else "boundary_weight"
        model = MaskedLanguageModel(config, seed=0, **{head: 1.0})
    given = inputs(LENGTHS["full rows" if rows == "full" else "short rows"])
    given = given._replace(draws_K=torch.zeros(8, dtype=torch.int64))
    if rows == "packed":  # documents of sequences, dead tokens and empty pieces after them
        bounds = torch.tensor([0, 30, 40, 57, 59, 59, 59], dtype=torch.int32)
        alive = (torch.arange(59) < 50).float()
        given = given._replace(pieces=Pieces(bounds, TOY.positions), token_weights_T=alive)
    away = [part.to("meta") if hasattr(part, "to") else part for part in given]
    with StepTrace() as trace:
        sums = model.to("meta").bfloat16().train()(Inputs(*away))
        loss_sum(model.parts, sums, LossCounts(5, 59, 2, 5)).backward()
    assert not trace.waits
    assert all(part.grad is not None for part in model.parameters())

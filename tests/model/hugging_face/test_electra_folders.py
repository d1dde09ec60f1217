"""Parity with transformers' two ELECTRA classes, both ways, through the production table."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from model.config import EncoderConfig
from model.hugging_face.electra_folders import from_folders, join_folders, to_folders
from model.objectives.masked_language import Inputs
from model.objectives.replaced_tokens import PARTS, Kind, ReplacedTokenModel
from model.objectives.sampling import first_word, race
from tests.model.conftest import (
    LENGTHS,
    MASK_ID,
    TOY,
    assert_each_number_has_one_name,
    assert_same_weights,
    in_rows,
    theirs_of,
    toy_batch,
    with_dead,
    with_drawn_vectors,
)

CONFIG = replace(TOY, position_offset=0, segment_types=2, embedding_width=32, width=48)
GENERATORS: dict[str, EncoderConfig | None] = {
    "smaller": replace(CONFIG, width=24, heads=2, feed_forward=72, layers=1),
    "as wide as embeddings": replace(CONFIG, width=32, feed_forward=64),
    "the encoder itself": None,
}
DEAD = 3


def toy(name: str) -> ReplacedTokenModel:
    model = ReplacedTokenModel(CONFIG, GENERATORS[name], weight=50.0, seed=1)
    return with_drawn_vectors(model)


def inputs(rows: str) -> tuple[Inputs, dict[str, Tensor]]:
    """A batch of two segments with dead tokens at its end, and what transformers takes: padded rows
    without the dead tokens; 5 of its 8 slots are used."""
    batch = toy_batch(LENGTHS[rows])
    generator = torch.Generator().manual_seed(3)
    ids, mask = in_rows(batch["input_ids_T"], batch["pieces"])
    segments = (torch.arange(TOY.positions) > 8).long() * mask
    found = Inputs(
        **with_dead(batch, DEAD),
        mask_id=MASK_ID,
        segment_ids_T=F.pad(segments[mask], (0, DEAD)),
        draws_K=torch.randint(2**62, (8,), generator=generator),
    )
    return found, {"input_ids": ids, "attention_mask": mask.long(), "token_type_ids": segments}


@pytest.mark.parametrize("rows", LENGTHS)
@pytest.mark.parametrize("name", GENERATORS)
def test_logits_and_losses_are_equal(name: str, rows: str) -> None:
    model = toy(name).eval()
    detector, filler = (theirs_of(*folder) for folder in to_folders(model))
    given, arguments = inputs(rows)
    mask = arguments["attention_mask"].bool()
    with torch.no_grad():
        words = filler(**arguments).logits[mask]
        ours = model.logits(given.input_ids_T, given.pieces, given.segment_ids_T)
        torch.testing.assert_close(ours[:-DEAD], words, rtol=0, atol=1e-5)
        assert words.std() > 0.3
        used = given.positions_K[:5]
        expected = F.cross_entropy(words[used], given.labels_K[:5], reduction="sum")

        # A slow reference for the discriminator's input and labels.
        shown, labels = given.input_ids_T.clone(), torch.zeros(len(words), dtype=torch.int64)
        for slot, position in enumerate(used.tolist()):
            chances = words[position].softmax(-1)
            waits = race(given.draws_K[slot : slot + 1], len(chances))
            word = int(first_word(chances[None], waits))
            shown[position] = word
            labels[position] = int(word != given.labels_K[slot])
        shown_BS, labels_BS = arguments["input_ids"].clone(), torch.zeros(mask.shape).long()
        shown_BS[mask], labels_BS[mask] = shown[:-DEAD], labels
        theirs = detector(**arguments | {"input_ids": shown_BS}, labels=labels_BS)
        logits = model.detect(shown, given.pieces, given.segment_ids_T)
        torch.testing.assert_close(logits[:-DEAD], theirs.logits[mask], rtol=0, atol=1e-5)
        sums = model(given)
    torch.testing.assert_close(sums["mlm_loss"], expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(sums["rtd_loss"] / mask.sum(), theirs.loss, rtol=1e-5, atol=0)
    assert sums["rtd_replaced"] == labels.sum() >= 3


@pytest.mark.parametrize("name", GENERATORS)
def test_their_folders_become_the_same_model(name: str) -> None:
    model = toy(name)
    theirs = [theirs_of(*folder) for folder in to_folders(model)]
    back = from_folders(*((each.state_dict(), each.config.to_dict()) for each in theirs))
    assert (back.config, back.generator_config) == (model.config, model.generator_config)
    assert (back.generator is None) == (name == "the encoder itself")
    assert_same_weights(model, back)
    assert_each_number_has_one_name(model)


@pytest.mark.parametrize("name", GENERATORS)
def test_traps_12_the_whole_embedding_block_is_shared(name: str) -> None:
    """Words, positions, segments and LayerNorm: one parameter each, with gradients of both."""
    model = toy(name)
    names = [parameter for parameter, _ in model.named_parameters() if "embeddings" in parameter]
    parts = ("words.weight", "positions.weight", "segments.weight", "norm.weight", "norm.bias")
    assert names == [f"encoder.embeddings.{part}" for part in parts]
    given, _ = inputs("full rows")
    norm, gradients = model.encoder.embeddings.norm.weight, []
    for parts in (("mlm_loss",), ("rtd_loss",), ("mlm_loss", "rtd_loss")):
        model.zero_grad()
        sums = model(given)
        torch.stack([sums[part] for part in parts]).sum().backward()
        assert norm.grad is not None and norm.grad.any()
        gradients.append(norm.grad.clone())
    mlm, rtd, both = gradients
    torch.testing.assert_close(both, mlm + rtd, rtol=1e-4, atol=1e-5)


def test_traps_12_what_is_sampled_has_no_gradient_and_without_draws_nothing_is() -> None:
    """Detection alone moves no parameter that only the generator has."""
    model, given = toy("smaller"), inputs("full rows")[0]
    sums = model(given)
    sums["rtd_loss"].backward()
    for name, parameter in model.named_parameters():
        moved = parameter.grad is not None and bool(parameter.grad.any())
        assert moved == name.startswith(("encoder.", "detection.")), name
    alone = model(given._replace(draws_K=None))
    assert set(alone) == {"mlm_loss", "mlm_correct", "mask_loss", "mask_count"}
    assert torch.equal(alone["mlm_loss"], sums["mlm_loss"])


def test_embeddings_that_differ_are_the_generators_own() -> None:
    """Or refused, where the run shares them."""
    detector, (state, config) = to_folders(toy("smaller"))
    changed = state | {"electra.embeddings.LayerNorm.bias": torch.ones(32)}
    with pytest.raises(ValueError, match=r"LayerNorm.bias differs .*=own"):
        join_folders(detector[0], changed, tied=False, own=False)
    model = from_folders(detector, (changed, config))
    assert model.own_embeddings and model.generator is not None
    assert model.generator.embeddings.norm.bias.eq(1).all()


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("kind", PARTS)
def test_every_kind_returns_from_its_folders(kind: Kind, own: bool) -> None:
    """With shared or own embeddings; what restores words is an ElectraForMaskedLM itself, and its
    logits are transformers'."""
    width = 24 if own else 32
    generator = replace(CONFIG, width=24, heads=2, feed_forward=72, embedding_width=width)
    model = ReplacedTokenModel(CONFIG, generator, weight=7.0, seed=1, kind=kind, own_embeddings=own)
    folders = to_folders(model.eval())
    again = from_folders(*folders).eval()
    assert (again.kind, again.parts, again.own_embeddings) == (kind, model.parts, own)
    assert_same_weights(model, again)
    (state, config), generator_folder = folders
    own = {name: value for name, value in state.items() if not name.startswith("copying.")}
    theirs = [theirs_of(own, config), theirs_of(*generator_folder)]
    given, arguments = inputs("short rows")
    mask = arguments["attention_mask"].bool()
    seen = given.input_ids_T, given.pieces, given.segment_ids_T
    with torch.no_grad():
        expected = [one(**arguments).logits[mask] for one in theirs]
        head = model.restored if model.restoring else model.detect
        found = [head(*seen)[:-DEAD], model.logits(*seen)[:-DEAD]]
    for mine, other in zip(found, expected):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-5)

"""Folders of ModernBERT: both forms of settings, weights both ways, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import ModernBertConfig, ModernBertForMaskedLM

from model.hugging_face.conversion import from_hugging_face, to_hugging_face
from model.hugging_face.modern_settings import modern_config, their_modern_config, untold
from model.objectives.masked_language import MaskedLanguageModel
from tests.model.conftest import in_rows
from tests.model.test_rotary import MODERN, drawn

NEW = ("layer_types", "rope_parameters")
OLD = ("global_rope_theta", "local_rope_theta", "global_attn_every_n_layers")


def toy() -> MaskedLanguageModel:
    """Vectors are drawn too; padding words stay 0."""
    model = MaskedLanguageModel(MODERN, seed=1).eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
        model.head.bias[MODERN.vocab_size :] = 0
    return model


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_logits_are_equal_and_weights_return(implementation: str) -> None:
    """Rows shorter and longer than the window, several pieces, padded in theirs."""
    model = toy()
    state, config = to_hugging_face(model)
    settings = ModernBertConfig(**config, attn_implementation=implementation)
    other = ModernBertForMaskedLM(settings)
    other.load_state_dict(state)
    ids, pieces = drawn()
    rows, mask = in_rows(ids, pieces, fill=0)
    with torch.no_grad():
        found = model.head.logits(model.encoder(ids, pieces))
        wanted = other.eval()(rows, attention_mask=mask.long()).logits[mask]
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
        said = settings.to_dict() | {"model_type": "modernbert"}
        again = from_hugging_face(other.state_dict(), said)
        assert again.config == model.config
        back = again.eval().head.logits(again.encoder(ids, pieces))
        assert torch.equal(back, found)


def test_it_has_every_setting_that_text_embeddings_inference_requires() -> None:
    """Fields without a default of `ModernBertConfig` in its backends/candle, version 1.9.3; an
    export adds the ids of its tokenizer."""
    assert their_modern_config(MODERN).keys() >= {
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "hidden_activation", "max_position_embeddings",
        "initializer_range", "initializer_cutoff_factor", "norm_eps", "norm_bias",
        "global_rope_theta", "attention_bias", "attention_dropout", "global_attn_every_n_layers",
        "local_attention", "local_rope_theta", "classifier_activation",
    }  # fmt: skip


@pytest.mark.parametrize("window", [0, 6])
@pytest.mark.parametrize("left_out", [NEW, OLD])
def test_each_form_alone_gives_the_same_encoder(left_out: tuple[str, ...], window: int) -> None:
    config = replace(MODERN, layers=7, window=window, global_every=3 if window else 1)
    theirs = their_modern_config(config)
    assert modern_config({k: v for k, v in theirs.items() if k not in left_out}) == config


def test_without_windows_their_base_is_the_usual_one() -> None:
    """Nothing uses it, and a run's settings refuse what has no effect."""
    config = replace(MODERN, window=0, global_every=1)
    theirs = their_modern_config(config) | {"local_rope_theta": 160_000.0}
    del theirs["rope_parameters"]
    assert modern_config(theirs) == config
    assert config.local_rotary_base == 10_000


def test_dropout_after_attention_is_not_said_of_embeddings() -> None:
    """transformers would drop embeddings where no embedding was dropped."""
    dropping = replace(MODERN, dropout=0.1, attention_dropout=0.2)
    only = replace(dropping, dropout_places="attention_output")
    names = "embedding_dropout", "mlp_dropout", "attention_dropout"
    assert [their_modern_config(dropping)[name] for name in names] == [0.1, 0.0, 0.2]
    assert [their_modern_config(only)[name] for name in names] == [0.0, 0.0, 0.2]
    assert untold(0.1, "attention_output") == (
        "a dropout of 0.1 of attention's output alone; config.json can state none"
    )
    assert "can state that of embeddings" in untold(0.1, "all")
    assert untold(0.0, "all") == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm_bias": True}, "norm_bias=True cannot be loaded; it must be False"),
        ({"classifier_activation": "silu"}, "classifier_activation='silu'"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=False"),
        ({"decoder_bias": False}, "decoder_bias=False"),
        ({"local_attention": 5}, "local_attention=5 cannot be loaded; it must be an even number"),
        ({"layer_types": ["sliding_attention"] * 4}, "layer_types[0]='sliding_attention'"),
        ({"rope_parameters": None, "local_rope_theta": -1.0}, "local_rope_theta=-1.0"),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1e4}}},
            "rope_parameters.full_attention={'rope_type': 'yarn', 'rope_theta': 10000.0} cannot be",
        ),
        (
            {"rope_parameters": {"sliding_attention": {"rope_theta": 0}}},
            "local_rope_theta=0 cannot be loaded; it must be a number above 0",
        ),
        (
            {"rope_parameters": {"full_attention": {"partial_rotary_factor": 0.5}}},
            "it must be rope_type default and a rope_theta",
        ),
        (
            {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
            "it must be an entry each for full_attention and sliding_attention",
        ),
        ({"rope_parameters": {"full_attention": 3}}, "rope_parameters.full_attention=3 cannot be"),
        ({"rope_parameters": [1]}, "rope_parameters=[1] cannot be loaded"),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
            "it must be null: positions are",
        ),
        ({"layer_types": 3}, "layer_types cannot be loaded; it must list num_hidden_layers=4"),
        ({"layer_types": ["full_attention"] * 3}, "it must list num_hidden_layers=4"),
        (
            {"layer_types": ["full_attention"] * 2 + ["sliding_attention"] * 2},
            "layer_types[2]='sliding_attention' cannot be loaded; it must be full_attention: "
            "the first layer and every 1 from it are full_attention",
        ),
        ({"num_attention_heads": 16}, "divide hidden_size=48 into even sizes"),
        ({"num_attention_heads": 5}, "num_attention_heads=5 cannot be loaded; it must divide"),
        ({"num_hidden_layers": True}, "num_hidden_layers=True cannot be loaded"),
        ({"norm_eps": "small"}, "norm_eps='small' cannot be loaded"),
    ],
)
def test_what_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        modern_config(their_modern_config(MODERN) | change)


def test_a_missing_local_base_is_the_global_one() -> None:
    theirs = their_modern_config(MODERN) | {"rope_parameters": None, "local_rope_theta": None}
    assert modern_config(theirs).local_rotary_base == MODERN.rotary_base

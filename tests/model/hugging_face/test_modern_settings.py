"""Folders of ModernBERT: both forms of settings, weights both ways, and what is refused."""

from dataclasses import replace

import pytest
import torch

from model.hugging_face.conversion import from_hugging_face, to_hugging_face
from model.hugging_face.modern_settings import modern_config, their_modern_config, untold
from tests.model.conftest import in_rows, theirs_of
from tests.model.test_rotary import MODERN, drawn, modern_model

NEW = ("layer_types", "rope_parameters")
OLD = ("global_rope_theta", "local_rope_theta", "global_attn_every_n_layers")


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_logits_are_equal_and_weights_return(implementation: str) -> None:
    """Rows shorter and longer than the window, several pieces, padded in theirs."""
    model = modern_model()
    state, config = to_hugging_face(model)
    other = theirs_of(state, config | {"attn_implementation": implementation})
    assert other.config._attn_implementation == implementation
    ids, pieces = drawn()
    rows, mask = in_rows(ids, pieces, fill=0)
    with torch.no_grad():
        found = model.head.logits(model.encoder(ids, pieces))
        wanted = other(rows, attention_mask=mask.long()).logits[mask]
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
        said = other.config.to_dict() | {"model_type": "modernbert"}
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


def test_bases_that_are_missing() -> None:
    """Nothing uses that of windows where there are none, and a run's settings refuse what has no
    effect; a missing local base is the global one."""
    config = replace(MODERN, window=0, global_every=1)
    theirs = their_modern_config(config) | {"local_rope_theta": 160_000.0}
    del theirs["rope_parameters"]
    assert modern_config(theirs) == config and config.local_rotary_base == 10_000
    theirs = their_modern_config(MODERN) | {"rope_parameters": None, "local_rope_theta": None}
    assert modern_config(theirs).local_rotary_base == MODERN.rotary_base


def test_dropout_after_attention_is_not_said_of_embeddings() -> None:
    """transformers would drop embeddings where no embedding was dropped."""
    dropping = replace(MODERN, dropout=0.1, attention_dropout=0.2)
    only = replace(dropping, dropout_places="attention_output")
    names = "embedding_dropout", "mlp_dropout", "attention_dropout"
    assert [their_modern_config(dropping)[name] for name in names] == [0.1, 0.0, 0.2]
    assert [their_modern_config(only)[name] for name in names] == [0.0, 0.0, 0.2]
    assert untold(0.1, "attention_output").startswith("a dropout of 0.1 of attention's output")
    assert "can state that of embeddings" in untold(0.1, "all")
    assert untold(0.0, "all") == ""


ROPE, TYPES = "rope_parameters", "layer_types"
HALVES = ["full_attention"] * 2 + ["sliding_attention"] * 2


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("norm_bias", True, "norm_bias=True"),
        ("classifier_activation", "silu", "classifier_activation='silu'"),
        ("tie_word_embeddings", False, "tie_word_embeddings=False"),
        ("decoder_bias", False, "decoder_bias=False"),
        ("local_attention", 5, "local_attention=5"),
        ("num_attention_heads", 16, "num_attention_heads=16 .* hidden_size=48 into even"),
        ("num_attention_heads", 5, "num_attention_heads=5"),
        ("num_hidden_layers", True, "num_hidden_layers=True"),
        ("norm_eps", "small", "norm_eps='small'"),
        ("local_rope_theta", -1.0, "local_rope_theta=-1.0"),
        (ROPE, {"full_attention": {"rope_type": "yarn"}}, f"{ROPE}.full_attention={{'rope_type'"),
        (ROPE, {"sliding_attention": {"rope_theta": 0}}, "local_rope_theta=0 "),
        (ROPE, {"full_attention": {"partial_rotary_factor": 0.5}}, "'partial_rotary_factor'"),
        (ROPE, {"rope_type": "default", "rope_theta": 1e4}, f"{ROPE}={{'rope_type'"),
        (ROPE, {"full_attention": 3}, f"{ROPE}.full_attention=3"),
        (ROPE, [1], rf"{ROPE}=\[1\]"),
        ("rope_scaling", {"rope_type": "linear", "factor": 2.0}, "rope_scaling={"),
        (TYPES, 3, "num_hidden_layers=4"),
        (TYPES, ["full_attention"] * 3, "num_hidden_layers=4"),
        (TYPES, ["sliding_attention"] * 4, r"layer_types\[0\]='sliding_attention'"),
        (TYPES, HALVES, r"layer_types\[2\]='sliding_attention'"),
    ],
)
def test_what_is_refused(name: str, value: object, said: str) -> None:
    theirs = their_modern_config(MODERN) | {name: value}
    if name == "local_rope_theta":
        theirs[ROPE] = None
    with pytest.raises(ValueError, match=said):
        modern_config(theirs)

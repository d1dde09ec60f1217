"""The settings of ModernBERT <-> the config.json of its folder, in both forms. Needs no torch.

transformers 4.48 to 4.57 reads `global_rope_theta`, `local_rope_theta` and
`global_attn_every_n_layers`; since 5.0 it reads `rope_parameters` and `layer_types`, and falls back
on the others. A folder with only one form would silently be another model to half of its users, so
both are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from model.config import EncoderConfig

SIZES = {
    "vocab_size": "vocab_size",
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "positions": "max_position_embeddings",
}
SHARES = {
    "dropout": "embedding_dropout",
    "attention_dropout": "attention_dropout",
    "layer_norm_eps": "norm_eps",
    "initializer_range": "initializer_range",
}
FIXED = {
    "hidden_activation": "gelu",
    "classifier_activation": "gelu",
    "attention_bias": False,
    "mlp_bias": False,
    "norm_bias": False,
    "classifier_bias": False,
    "decoder_bias": True,
    "tie_word_embeddings": True,
}
"""`classifier_activation` is that of the head of masked words, too."""
GLOBAL, LOCAL = "full_attention", "sliding_attention"
DEFAULT = {"global_rope_theta": 160_000.0, "local_rope_theta": 10_000.0}
"""transformers' defaults, for folders that do not say."""
DEFAULT_EVERY, DEFAULT_WINDOW = 3, 128
DEFAULT_SHARES = {
    "embedding_dropout": 0.0, "attention_dropout": 0.0, "norm_eps": 1e-5, "initializer_range": 0.02
}  # fmt: skip
LARGEST = 1e9


def their_modern_config(config: EncoderConfig) -> dict[str, Any]:
    """transformers' configuration. It has no dropout after the outputs of a layer's parts, but for
    that of attention, which has the value of attention's weights: see `untold`."""
    kinds = [GLOBAL if config.reach(depth) is None else LOCAL for depth in range(config.layers)]
    bases = {GLOBAL: config.rotary_base, LOCAL: config.local_rotary_base}
    return {
        "architectures": ["ModernBertForMaskedLM"],
        "model_type": "modernbert",
        **{theirs: getattr(config, ours) for ours, theirs in (SIZES | SHARES).items()},
        **FIXED,
        # Else --init would drop embeddings that training did not drop.
        **({} if config.dropout_places == "all" else {SHARES["dropout"]: 0.0}),
        "initializer_cutoff_factor": 2.0,  # unused; text-embeddings-inference refuses its absence
        "mlp_dropout": 0.0,
        # A window of 0 is never used, but has to be a number.
        "local_attention": config.window or DEFAULT_WINDOW,
        "global_attn_every_n_layers": config.global_every if config.window else 1,
        "global_rope_theta": config.rotary_base,
        "local_rope_theta": config.local_rotary_base,
        "layer_types": kinds,
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()
        },
        "pad_token_id": 0,
        "bos_token_id": 0,
        "eos_token_id": 2,
    }


def untold(dropout: float, places: str) -> str:
    """The part of a model's `dropout`, in its `dropout_places`, that transformers' configuration
    cannot state; "" if it states all."""
    if not dropout:
        return ""
    if places == "all":
        where, told = "embeddings and of the outputs of both parts of a layer", "that of embeddings"
    else:
        where, told = "attention's output alone", "none"
    return f"a dropout of {dropout:g} of {where}; config.json can state {told}"


def modern_config(theirs: Mapping[str, Any]) -> EncoderConfig:
    """The encoder of a configuration; raises ValueError for settings missing or not supported."""
    if lacking := sorted(set(SIZES.values()) - theirs.keys()):
        raise ValueError(f"the configuration lacks {', '.join(lacking)}")
    theirs = {**DEFAULT_SHARES, "classifier_activation": "gelu", **theirs}
    for name in SIZES.values():
        _check(name, theirs[name], isinstance(theirs[name], int) and 0 < theirs[name] < LARGEST,
               "a whole number above 0")  # fmt: skip
    for name in SHARES.values():
        _check(name, theirs[name], _is_number(theirs[name]) and 0 <= theirs[name] < LARGEST,
               "a number in [0, 1e9)")  # fmt: skip
    for name, value in FIXED.items():
        _check(name, theirs.get(name, value), theirs.get(name, value) == value, repr(value))
    if theirs["hidden_size"] % (2 * theirs["num_attention_heads"]):  # rotation is by pairs
        raise ValueError(
            f"num_attention_heads={theirs['num_attention_heads']} cannot be loaded; it must divide "
            f"hidden_size={theirs['hidden_size']} into even sizes, which rotary positions need"
        )
    scaling = theirs.get("rope_scaling")
    _check("rope_scaling", scaling, scaling is None, "null: positions are not scaled here")
    return EncoderConfig(
        **{ours: theirs[name] for ours, name in (SIZES | SHARES).items()},
        embedding_width=theirs["hidden_size"],
        activation="gelu",
        position_offset=0,
        segment_types=1,
        **_design(theirs),
    )


def _design(theirs: Mapping[str, Any]) -> dict[str, Any]:
    every, window = _every(theirs), theirs.get("local_attention", DEFAULT_WINDOW)
    _check("local_attention", window, isinstance(window, int) and window > 0 and window % 2 == 0,
           "an even number above 0")  # fmt: skip
    return {
        "norm": "pre",
        "gated": True,
        "biases": False,
        "position_kind": "rotary",
        "rotary_base": _base(theirs, GLOBAL, "global_rope_theta"),
        # Without windows it is never used, and the settings of a run refuse what has no effect.
        "local_rotary_base": DEFAULT["local_rope_theta"]
        if every == 1
        else _base(theirs, LOCAL, "local_rope_theta"),
        "window": 0 if every == 1 else window,
        "global_every": every,
    }


def _every(theirs: Mapping[str, Any]) -> int:
    """Distance of layers without a window, in layers."""
    layers = theirs["num_hidden_layers"]
    kinds = theirs.get("layer_types")
    if kinds is None:
        stated = theirs.get("global_attn_every_n_layers", DEFAULT_EVERY)
        _check("global_attn_every_n_layers", stated, isinstance(stated, int) and stated > 0,
               "a whole number above 0")  # fmt: skip
        return int(stated)
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise ValueError(f"layer_types cannot be loaded; it must list num_hidden_layers={layers}")
    found = [depth for depth, kind in enumerate(kinds) if kind == GLOBAL]
    every = found[1] if len(found) > 1 else int(layers)  # only layer 0 is global
    for depth, kind in enumerate(kinds):
        wanted = LOCAL if depth % every else GLOBAL
        _check(f"layer_types[{depth}]", kind, kind == wanted,
               f"{wanted}: the first layer and every {every} from it are {GLOBAL}")  # fmt: skip
    return every


def _base(theirs: Mapping[str, Any], kind: str, old_name: str) -> float:
    both = theirs.get("rope_parameters") or {}
    _check("rope_parameters", both, isinstance(both, Mapping) and both.keys() <= {GLOBAL, LOCAL},
           f"an entry each for {GLOBAL} and {LOCAL}")  # fmt: skip
    own = both.get(kind) or {}
    is_plain = isinstance(own, Mapping) and own.keys() <= {"rope_type", "rope_theta"}
    _check(f"rope_parameters.{kind}", own,
           is_plain and own.get("rope_type", "default") == "default",
           "rope_type default and a rope_theta")  # fmt: skip
    base = own.get("rope_theta", theirs.get(old_name, DEFAULT[old_name]))
    if base is None and old_name == "local_rope_theta":  # 4.48 takes the other one then
        return _base(theirs, GLOBAL, "global_rope_theta")
    _check(old_name, base, _is_number(base) and 0 < base < 1e12, "a number above 0")
    return float(base)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check(name: str, value: object, is_legal: bool, wanted: str) -> None:
    # JSON's true is an int in Python, but not a number.
    if not is_legal or (isinstance(value, bool) and wanted.startswith("a ")):
        raise ValueError(f"{name}={value!r} cannot be loaded; it must be {wanted}")

"""The settings of one of ELECTRA's networks <-> the config.json of its folder. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from model.config import EncoderConfig
from model.hugging_face.config_json import COMMON, check_numbers
from model.hugging_face.families import ELECTRA


def their_electra_config(config: EncoderConfig, architecture: str) -> dict[str, Any]:
    """transformers' configuration of one of ELECTRA's networks; raises ValueError if it has no
    class for it."""
    if config.position_offset or config.sharing != "none":
        raise ValueError(
            f"position_offset={config.position_offset} and sharing={config.sharing}: ELECTRA "
            "needs position_offset=0 and sharing=none"
        )
    # transformers' ElectraGeneratorPredictions has a gelu that no setting changes.
    if config.activation != "gelu":
        raise ValueError(f"activation={config.activation}: ELECTRA's generator needs gelu")
    return {
        "architectures": [architecture],
        "model_type": ELECTRA.model_type,
        **{theirs: getattr(config, ours) for ours, theirs in COMMON.items()},
        "embedding_size": config.embedding_width,
        "hidden_act": "gelu",
        "max_position_embeddings": config.positions,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
    }


def electra_config(theirs: Mapping[str, Any]) -> EncoderConfig:
    """The encoder of a configuration; raises ValueError for settings that we do not support."""
    needed = {*COMMON.values(), "embedding_size", "hidden_act", "max_position_embeddings"}
    if lacking := sorted(needed - theirs.keys()):
        raise ValueError(f"the configuration lacks {', '.join(lacking)}")
    check_numbers(theirs)
    fixed = {
        "model_type": ELECTRA.model_type,
        "hidden_act": "gelu",
        "tie_word_embeddings": True,
        "position_embedding_type": "absolute",
        "is_decoder": False,
    }
    for name, value in fixed.items():
        if theirs.get(name, value) != value:
            raise ValueError(f"{name}={theirs[name]} cannot be loaded; it must be {value}")
    return EncoderConfig(
        **{ours: theirs[name] for ours, name in COMMON.items()},
        embedding_width=theirs["embedding_size"],
        sharing="none",
        groups=1,
        activation="gelu",
        positions=theirs["max_position_embeddings"],
        position_offset=0,
    )

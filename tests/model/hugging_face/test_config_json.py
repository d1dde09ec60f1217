"""Configurations of transformers' folders against those of our recipes."""

from typing import Any

import pytest

from model.hugging_face.config_json import our_config, their_config
from model.hugging_face.families import family_of
from pipeline.planning.phase_plan import encoder_config
from pipeline.recipes import recipe

COMMON = {
    "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu",
    "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072,
    "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "num_attention_heads": 12,
    "num_hidden_layers": 12, "pad_token_id": 0, "type_vocab_size": 2,
}  # fmt: skip
# As published: https://huggingface.co/albert-base-v2 and -v1, recalled
PUBLISHED_ALBERT = COMMON | {
    "architectures": ["AlbertForMaskedLM"], "attention_probs_dropout_prob": 0, "bos_token_id": 2,
    "classifier_dropout_prob": 0.1, "down_scale_factor": 1, "embedding_size": 128,
    "eos_token_id": 3, "gap_size": 0, "hidden_act": "gelu_new", "hidden_dropout_prob": 0,
    "inner_group_num": 1, "model_type": "albert", "net_structure_type": 0,
    "num_hidden_groups": 1, "num_memory_blocks": 0, "vocab_size": 30000,
}  # fmt: skip
# bert-base-uncased and roberta-base, recalled
PUBLISHED_BERT = COMMON | {
    "architectures": ["BertForMaskedLM"], "gradient_checkpointing": False, "model_type": "bert",
    "position_embedding_type": "absolute", "use_cache": True, "vocab_size": 30522,
}  # fmt: skip
PUBLISHED_ROBERTA = COMMON | {
    "architectures": ["RobertaForMaskedLM"], "bos_token_id": 0, "eos_token_id": 2,
    "layer_norm_eps": 1e-5, "max_position_embeddings": 514, "model_type": "roberta",
    "pad_token_id": 1, "type_vocab_size": 1, "vocab_size": 50265,
}  # fmt: skip
VERSION_1 = {"hidden_act": "gelu", "attention_probs_dropout_prob": 0.1, "hidden_dropout_prob": 0.1}


@pytest.mark.parametrize(
    ("published", "recipe_name"),
    [
        (PUBLISHED_ALBERT, "albert_base"),
        (PUBLISHED_ALBERT | VERSION_1, "albert_base_v1_published"),
        (PUBLISHED_BERT, "bert_base_published"),
        (PUBLISHED_ROBERTA, "roberta_base_published"),
    ],
)
def test_published_settings_are_those_of_our_recipes_and_survive_a_round_trip(
    published: dict[str, Any], recipe_name: str
) -> None:
    found, config = our_config(published)
    assert config == encoder_config(recipe(recipe_name))
    assert family_of(config, False) is found
    again = their_config(config, False)
    specials = {"bos_token_id", "eos_token_id"}  # set by the tokenizer
    shared = (again.keys() & published.keys()) - specials
    assert {name: again[name] for name in shared} == {name: published[name] for name in shared}


@pytest.mark.parametrize(
    ("published", "name", "value"),
    [
        (PUBLISHED_ALBERT, "inner_group_num", 2),
        (PUBLISHED_ALBERT, "num_hidden_groups", 5),
        (PUBLISHED_ALBERT, "model_type", "deberta"),
        (PUBLISHED_ALBERT, "embedding_size", None),
        (PUBLISHED_ROBERTA, "hidden_act", "relu"),
        (PUBLISHED_ROBERTA, "attention_probs_dropout_prob", "0.3"),
        (PUBLISHED_ROBERTA, "attention_probs_dropout_prob", None),
        (PUBLISHED_ROBERTA, "tie_word_embeddings", False),
        (PUBLISHED_ROBERTA, "hidden_size", None),
    ],
)
def test_settings_that_cannot_be_loaded_are_named(
    published: dict[str, Any], name: str, value: object
) -> None:
    """None: it is not there."""
    changed = {key: each for key, each in (published | {name: value}).items() if each is not None}
    with pytest.raises(ValueError, match=f"lacks {name}" if value is None else f"{name}='?{value}"):
        our_config(changed)

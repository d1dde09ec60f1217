"""A configuration that does not fit its weights is refused before a model is built."""

from typing import Any

import pytest

from model.hugging_face.config_json import our_config
from model.hugging_face.conversion import from_hugging_face, to_hugging_face
from model.hugging_face.electra_folders import from_folders
from model.hugging_face.families import ELECTRA, ROBERTA
from model.hugging_face.sizes import check_sizes, named
from model.tasks.task_model import TaskDesign, read_task_model
from tests.model.conftest import toy_model

HUGE = 10**15
"""More numbers than any memory has room for."""
SIZES = ("vocab_size", "max_position_embeddings", "type_vocab_size", "intermediate_size")


@pytest.mark.parametrize("name", SIZES)
def test_a_size_beyond_the_weights_is_one_line_that_names_both(name: str) -> None:
    state, config = to_hugging_face(toy_model())
    huge = config | {name: HUGE}
    message = rf"^roberta\.\S+\.weight has shape \(\d+, \d+\), the configuration has {name}={HUGE}$"
    with pytest.raises(ValueError, match=message):
        check_sizes(ROBERTA, our_config(huge)[1], huge, state)
    with pytest.raises(ValueError, match=message):
        from_hugging_face(state, huge)
    with pytest.raises(ValueError, match=message):
        read_task_model(state, huge, TaskDesign("classification", ("no", "yes")), seed=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers=1000000000 .* at most 10,000"),
        ({"num_hidden_layers": 9_000}, r"occurs \d times, .* num_hidden_layers=9000"),
        ({"num_attention_heads": 7}, "num_attention_heads=7 .* divide hidden_size=48"),
        ({"pad_token_id": 10**9}, "pad_token_id=1000000000 .* max_position_embeddings="),
    ],
)
def test_numbers_that_make_no_model_are_named(change: dict[str, Any], message: str) -> None:
    state, config = to_hugging_face(toy_model())
    with pytest.raises(ValueError, match=message):
        from_hugging_face(state, config | change)


def test_both_networks_of_electra_are_checked() -> None:
    state, config = to_hugging_face(toy_model())
    names = {name.replace("roberta", "electra"): weight for name, weight in state.items()}
    config |= {"model_type": ELECTRA.model_type, "embedding_size": 48, "hidden_act": "gelu"}
    whole, huge = (names, config), (names, config | {"vocab_size": HUGE})
    for folders in ((huge, whole), (whole, huge)):
        with pytest.raises(ValueError, match=f"vocab_size={HUGE}"):
            from_folders(*folders)


def test_many_missing_weights_are_counted() -> None:
    assert named(["a"]) == "['a']"
    assert named(f"{n}" for n in range(190)) == "['0', '1', '2'] and 187 more"
    state, config = to_hugging_face(toy_model())
    few = {name: state[name] for name in state if "embeddings" in name or ".inter" in name}
    with pytest.raises(ValueError, match=r"missing \['lm_head.bias', .*\] and \d+ more, unknown"):
        from_hugging_face(few, config)

"""config.json of ELECTRA: read and written, and refused where we have no such network."""

from dataclasses import replace

import pytest

from model.hugging_face.electra_settings import electra_config, their_electra_config
from tests.model.conftest import TOY

CONFIG = replace(TOY, position_offset=0, segment_types=2, embedding_width=32, width=48)


def test_settings_come_back() -> None:
    theirs = their_electra_config(CONFIG, "ElectraForMaskedLM")
    assert theirs["architectures"] == ["ElectraForMaskedLM"] and theirs["embedding_size"] == 32
    assert electra_config(theirs) == CONFIG


def test_other_networks_are_refused_and_what_is_missing_is_named() -> None:
    theirs = their_electra_config(CONFIG, "ElectraForPreTraining")
    lacking = {name: value for name, value in theirs.items() if name != "embedding_size"}
    for given, message in (
        (theirs | {"hidden_act": "relu"}, "hidden_act=relu"),
        (theirs | {"is_decoder": True}, "is_decoder=True"),
        (lacking, "lacks embedding_size"),
    ):
        with pytest.raises(ValueError, match=message):
            electra_config(given)
    with pytest.raises(ValueError, match="position_offset=0"):
        their_electra_config(replace(CONFIG, position_offset=2), "ElectraForPreTraining")

"""EncoderConfig has the sizes of a run's encoder settings, under the same names."""

from dataclasses import replace
from typing import get_type_hints

import pytest

from model.config import EncoderConfig, Initializer
from pipeline.config.encoder_settings import EncoderSettings
from pipeline.planning.phase_plan import encoder_config
from pipeline.recipes.roberta import roberta_base
from tests.model.conftest import TOY


def test_has_the_fields_of_a_run_and_the_vocabulary() -> None:
    settings = get_type_hints(EncoderSettings)
    assert settings.pop("initializer") == Initializer  # an argument of its own: not a size
    assert get_type_hints(EncoderConfig) == {"vocab_size": int} | settings
    run = roberta_base()
    config = encoder_config(run)
    assert (config.width, config.embedding_width, config.vocab_size) == (768, 768, 50_265)


@pytest.mark.parametrize(("size", "padded"), [(50_265, 50_304), (2_048, 2_048), (2_049, 2_176)])
def test_vocabulary_is_padded_to_a_multiple_of_128(size: int, padded: int) -> None:
    assert replace(TOY, vocab_size=size).padded_vocab_size == padded

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError
from pipeline.downstream.finetune_tasks import TASKS
from pipeline.downstream.protocols import BERT
from pipeline.downstream.starting_weights import load_start
from pipeline.downstream.work import choose_protocol, make_encoder

EXPORTS = Path(__file__).parents[2] / "golden/exports"


def test_a_model_with_few_positions_is_refused() -> None:
    start = load_start(EXPORTS / "bert")
    few = replace(start, config={**start.config, "max_position_embeddings": 15})
    with pytest.raises(ConfigError, match="the model has 15 positions, and fine-tuning needs 16"):
        make_encoder(few, BERT)


def test_a_length_above_the_positions_is_refused() -> None:
    start = load_start(EXPORTS / "bert")
    with pytest.raises(ConfigError, match="--length 33 is above the model's 32 positions; lower"):
        choose_protocol(Namespace(length=33), TASKS["sst2"], start)

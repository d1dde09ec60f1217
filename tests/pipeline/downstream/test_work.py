from argparse import Namespace
from dataclasses import replace

import pytest

from pipeline.base.errors import ConfigError
from pipeline.downstream.finetune_tasks import TASKS
from pipeline.downstream.protocols import BERT
from pipeline.downstream.starting_weights import load_start
from pipeline.downstream.work import choose_protocol, make_encoder
from tests.pipeline.downstream.small_work import EXPORTS


def test_a_model_with_few_positions_and_a_length_above_them_are_refused() -> None:
    start = load_start(EXPORTS / "bert")
    few = replace(start, config={**start.config, "max_position_embeddings": 15})
    with pytest.raises(ConfigError, match=r"15 positions, .* 16"):
        make_encoder(few, BERT)
    with pytest.raises(ConfigError, match=r"--length 33 .* 32"):
        choose_protocol(Namespace(length=33), TASKS["sst2"], start)

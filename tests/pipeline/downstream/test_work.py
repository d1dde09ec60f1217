import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError
from pipeline.downstream.finetune_tasks import METRICS, TASKS, LabelledTask, Split, TaskData
from pipeline.downstream.jobs import predict_examples
from pipeline.downstream.protocols import BERT
from pipeline.downstream.reading.examples import Answer, Example
from pipeline.downstream.starting_weights import load_start
from pipeline.downstream.work import choose_protocol, make_encoder, prepare_work
from tests.pipeline.downstream.small_work import EXPORTS


def test_a_model_with_few_positions_and_a_length_above_them_are_refused() -> None:
    start = load_start(EXPORTS / "bert")
    few = replace(start, config={**start.config, "max_position_embeddings": 15})
    with pytest.raises(ConfigError, match=r"15 positions, .* 16"):
        make_encoder(few, BERT)
    with pytest.raises(ConfigError, match=r"--length 33 .* 32"):
        choose_protocol(Namespace(length=33), TASKS["sst2"], start)


@pytest.mark.parametrize("name", ["spans", "squad1", "squad2"])
@pytest.mark.parametrize("gaps", [(), ("train",), ("dev",)])
def test_the_task_or_training_decides_whether_a_question_may_have_no_answer(
    name: str, gaps: tuple[str, ...], tmp_path: Path
) -> None:
    own = LabelledTask(name="spans", kind="spans", metrics=METRICS["spans"], train=(), dev=())
    given, none = Example("0", ("q", "a b"), (Answer("a", 0),)), Example("1", ("q", "a b"), ())
    train, dev = (
        Split(tmp_path / each, [given, none] if each in gaps else [given])
        for each in ("train", "dev")
    )
    start = load_start(EXPORTS / "bert")
    encoder = make_encoder(start, BERT)
    task = TASKS.get(name, own)
    work = prepare_work(tmp_path, task, TaskData(train, dev), tmp_path, start, BERT, encoder)
    model = start.random_model(work.design, 0)
    (_, examples, features), *_ = work.dev
    found = predict_examples(work, model, examples, features)
    abstains = name == "squad2" or (name == "spans" and "train" in gaps)
    lines = [json.loads(part.line("")) for part in found]
    assert {"null_score" in line for line in lines} == {abstains}

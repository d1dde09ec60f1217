"""A fine-tuning of a golden export that takes a second."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from model.tasks.task_model import TaskDesign
from pipeline.downstream.features import RowEncoder
from pipeline.downstream.finetune_tasks import TASKS
from pipeline.downstream.jobs import TuningWork
from pipeline.downstream.protocols import BERT
from pipeline.downstream.reading.examples import Example
from pipeline.downstream.starting_weights import load_start
from tests.launching.process import ROOT

EXPORTS = ROOT / "tests/golden/exports"
LABELS = ("0", "1")
FAMILIES = ("bert", "roberta", "albert", "electra", "spanbert", "modernbert")
every_family = pytest.mark.parametrize("family", FAMILIES)


def example(index: int, gold: Any = None, group: str = "") -> Example:
    """One whose text does not matter."""
    return Example(str(index), ("text",), gold, group)


def small_examples(count: int) -> list[Example]:
    """Labels that one word decides."""
    return [
        Example(str(i), (f"the film is {('bad', 'good')[i % 2]} {i}",), LABELS[i % 2])
        for i in range(count)
    ]


def small_work(output: Path) -> TuningWork:
    """Two grid points of a BERT on sst2."""
    start = load_start(EXPORTS / "bert")
    encoder = RowEncoder(start.vocabulary, 32)
    train, dev = small_examples(24), small_examples(10)
    points = [replace(BERT, grid=(), peak_lr=rate, rows=8, epochs=1) for rate in (1e-3, 1e-2)]
    return TuningWork(
        task=TASKS["sst2"],
        design=TaskDesign("classification", LABELS),
        start=start,
        points=points,
        training=train,
        train=encoder.encode(train, "classification", LABELS),
        dev=[("", dev, encoder.encode(dev, "classification", LABELS))],
        tests={},
        device=torch.device("cpu"),
        output=output,
    )

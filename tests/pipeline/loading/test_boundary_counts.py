"""Span boundary targets counted before decoding equal those of the decoded batches."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch

from model.objectives.span_boundary import MOST_TARGETS, boundaries
from pipeline.evaluation.model_inputs import model_inputs
from pipeline.loading.micro_batch import Extras
from tests.pipeline.loading.conftest import BOS, EOS, MASK, prepare_directory
from tests.pipeline.loading.test_loader import loader


@pytest.mark.parametrize("label", ["", "order"])
@pytest.mark.parametrize("vocabulary", [1000, 70_000])
def test_steps_know_their_boundary_targets(tmp_path: Path, vocabulary: int, label: str) -> None:
    """With rows of one or two segments, swapped or not."""
    directory = prepare_directory(tmp_path / "rows", (200,), vocabulary=vocabulary, label=label)
    source = loader(directory, 37, 8, extras=Extras(most_targets=MOST_TARGETS))
    for step in islice(source.steps(), 4):
        assert (step.counts.boundaries, step.counts.predictions) == counted(
            step.batches, MOST_TARGETS
        )
        assert 0 < step.counts.boundaries < step.counts.predictions
    source.close()


def test_no_span_counts_more_than_its_limit(tmp_path: Path) -> None:
    directory = prepare_directory(tmp_path / "rows", (200,))
    source = loader(directory, 64, 8, extras=Extras(most_targets=1))
    step = next(source.steps())
    spans, predictions = counted(step.batches, 1)
    assert step.counts.boundaries == spans < predictions
    source.close()


def test_nothing_is_counted_unless_requested(random_shards: Path) -> None:
    source = loader(random_shards)
    assert next(source.steps()).counts.boundaries == 0
    source.close()


def counted(batches: object, most: int) -> tuple[int, int]:
    """Targets and predictions, as the model reads the batches."""
    targets = predictions = 0
    for batch in batches:  # type: ignore[attr-defined]
        inputs = model_inputs(batch, MASK)
        assert inputs.edge_ids == (BOS, EOS)
        found = boundaries(inputs.input_ids_T, inputs.positions_K, inputs.weights_K, (BOS, EOS))
        targets += int((found.weights * (found.place < most)).sum())
        predictions += int(torch.count_nonzero(inputs.weights_K))
    return targets, predictions

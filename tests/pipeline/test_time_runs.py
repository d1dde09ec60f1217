"""Several runs are prepared, trained and scored in one process."""

import pytest

from pipeline.config.settings import override
from pipeline.experiments.children import Children
from pipeline.experiments.run_times import measure_runs
from pipeline.recipes import recipe
from tests.pipeline.experiments.small_ablation import SETTINGS


@pytest.mark.slow
def test_runs_are_timed_with_their_own_sizes() -> None:
    """Processes start as usual: one that trains a tokenizer cannot be forked."""
    run = override(recipe("roberta_tiny"), SETTINGS)
    one, other = measure_runs([run, override(run, ["data.sequence_length=16"])], Children())
    for times in (one, other):
        assert times.start > 0 and times.prepare > 0 and times.held_out > 0
        assert 0 < times.of_run(run, times.held_out, scorings=1) < 3600
    assert one.step_tokens > other.step_tokens

import gzip
import json
from pathlib import Path

import pytest
import torch

from pipeline.training.run_directory.profile import TRACED_STEPS, WARM_UP_STEPS, Trace


def work(trace: Trace, steps: int, first: int = 1) -> None:
    for number in range(first, first + steps):
        torch.ones(8, 8) @ torch.ones(8, 8)
        trace.step(number)


def test_a_trace_has_the_steps_after_warm_up(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "profile")
    work(trace, WARM_UP_STEPS + TRACED_STEPS + 5, first=101)
    trace.close()
    (path,) = (tmp_path / "profile").iterdir()
    assert path.name == f"step-{101 + WARM_UP_STEPS:08d}.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    found = [event for event in events if event.get("name") == "aten::mm"]
    assert len(found) == TRACED_STEPS
    assert {"ph", "ts", "dur", "pid", "tid"} <= set(found[0])  # what Perfetto reads


def test_a_trace_that_is_not_made_is_reported_if_it_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = Trace(tmp_path / "profile")
    work(trace, WARM_UP_STEPS + 1)
    trace.close()
    assert "needs 6 steps, the run made 4" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    (tmp_path / "profile").write_text("a file")
    work(Trace(tmp_path / "profile"), 10)
    assert "warning: cannot write" in capsys.readouterr().err
    trace = Trace(None)
    work(trace, 10)
    trace.close()
    assert capsys.readouterr() == ("", "")

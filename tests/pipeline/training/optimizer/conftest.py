import pytest

from pipeline.training.optimizer.cpu_update import CompiledUpdate
from pipeline.training.optimizer.gpu_update import ForeachUpdate
from pipeline.training.optimizer.optimizer import UPDATES


@pytest.fixture(params=[CompiledUpdate, ForeachUpdate])
def arithmetic(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either one computes the updates of optimizers on a CPU."""
    monkeypatch.setitem(UPDATES, "cpu", request.param)


@pytest.fixture
def foreach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Optimizers on a CPU use the operations for a GPU."""
    monkeypatch.setitem(UPDATES, "cpu", ForeachUpdate)

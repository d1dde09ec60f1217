"""No test of a network waits."""

import pytest

from pipeline.remote import http


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that would have been waited for."""
    found: list[float] = []
    monkeypatch.setattr(http, "sleep", found.append)
    return found

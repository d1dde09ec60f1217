"""What tests of several rooms of raw files share."""

from collections.abc import Iterator

import pytest

from pipeline.remote import retries
from tests.pipeline.remote.publishers import Publisher, publisher


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    """An empty publisher of lists and files; retries do not wait."""
    monkeypatch.setattr(retries, "sleep", lambda seconds: None)
    with publisher() as found:
        yield found

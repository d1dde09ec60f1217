"""What tests of several rooms of raw files share."""

from collections.abc import Iterator

import pytest

from tests.pipeline.remote.publishers import Publisher, standing_in


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    """Common Crawl and Wikimedia, with nothing published yet; retries do not wait."""
    with standing_in(monkeypatch) as found:
        yield found

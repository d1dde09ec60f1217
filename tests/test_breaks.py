"""The planted mistakes of `tests/breaks.py` still fit the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.breaks import BREAKS, ROOT, Break


@pytest.fixture(scope="module")
def sources() -> list[str]:
    return [
        path.read_text() for room in ("pipeline", "model") for path in (ROOT / room).rglob("*.py")
    ]


@pytest.mark.parametrize("planted", BREAKS, ids=lambda planted: planted.name)
def test_a_planted_mistake_has_its_place_and_its_test(planted: Break, sources: list[str]) -> None:
    assert sum(text.count(planted.old) for text in sources) == 1
    tests = (path.read_text() for path in Path(ROOT, "tests").rglob("test_*.py"))
    assert any(f"\ndef {planted.test}(" in text for text in tests)

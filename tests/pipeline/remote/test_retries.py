"""The loop around what a network does, without one and without waiting."""

from collections.abc import Callable

import pytest

from pipeline.base.errors import DataError
from pipeline.remote.retries import TryAgainError, patiently


def failing(*errors: TryAgainError) -> Callable[[], str]:
    """Fails so often, then succeeds."""
    left = [*errors]

    def attempt() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return attempt


def test_pauses_double_until_patience_ends(pauses: list[float]) -> None:
    with pytest.raises(DataError, match=r"^x .*busy; 30 attempts.*to continue"):
        patiently("x", failing(*[TryAgainError("busy")] * 30))
    assert pauses == [1, 2, 4, 8, 16, 32, 64] + [120] * 22


def test_without_an_answer_it_ends_soon(pauses: list[float]) -> None:
    gone = [TryAgainError("refused", answered=False)] * 5
    with pytest.raises(DataError, match=r"5 attempts.*with network"):
        patiently("x", failing(*gone))
    assert pauses == [1, 2, 4, 8]
    assert patiently("x", failing(*gone), size=9) == "done", "a file was listed, so there was one"


def test_fewer_attempts(pauses: list[float]) -> None:
    for attempts, why in ((1, r"\(no\)"), (3, r"\(no; 3 attempts\)")):
        with pytest.raises(DataError, match=why):
            patiently("x", failing(*[TryAgainError("no")] * attempts), attempts=attempts)
    assert pauses == [1, 2]


def test_wishes_have_limits(pauses: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    wishes = [TryAgainError("busy", wait=wait) for wait in (7, 0, 9999)]
    assert patiently("x", failing(*wishes)) == "done"
    assert pauses == [7, 2, 600]
    assert capsys.readouterr().err == "x: busy; next attempt in 600 s\n"


def test_a_transfer_that_gets_on_is_not_given_up(pauses: list[float]) -> None:
    have = iter(range(0, 1000, 2))
    cut = [TryAgainError("cut")] * 100
    assert patiently("x", failing(*cut), lambda: next(have), size=100) == "done"
    assert pauses == [1] * 100

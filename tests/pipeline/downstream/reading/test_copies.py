"""Copies differ in case, punctuation and white space at most; pairs are compared as pairs."""

from __future__ import annotations

import pytest

from pipeline.downstream.reading.copies import count_copies
from pipeline.downstream.reading.examples import Example

TRAINING = [("A fine film .",), ("It rains.", "It is wet."), ("!?",), ("B-X", "the", ",")]


@pytest.mark.parametrize(
    ("texts", "is_copy"),
    [
        (("a  FINE film",), True), (("A fine, fine film",), False), (("fine a film",), False),
        (("it rains", "it is wet"), True), (("it is wet", "it rains"), False),
        (("it rains",), False), (("it rains", "a fine film"), False),
        (("!?",), True), (("...",), False), (("",), False), (("B-X", "the", ","), True),
    ],
)  # fmt: skip
def test_copies(texts: tuple[str, ...], is_copy: bool) -> None:
    training = [Example(str(i), found, "a") for i, found in enumerate(TRAINING)]
    assert count_copies([Example("0", texts, "b")], training) == is_copy

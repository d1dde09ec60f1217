"""What identifies examples."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.downstream.reading.examples import Answer, Example, check_not_empty, content_hash
from tests.pipeline.downstream.small_work import example


def test_the_hash_is_that_of_what_is_read_and_none_is_refused() -> None:
    answer = Example("0", ("q", "paragraph"), (Answer("para", 0),))
    different = [
        [], [example(0, "a")], [example(1, "a")], [example(0, "b")], [example(0, None)],
        [example(0, "a"), example(1, "a")], [example(1, "a"), example(0, "a")],
        [example(0, 1.0)], [example(0, ("a",))], [answer], [replace(answer, gold=())],
        [replace(answer, gold=(Answer("para", 1),))], [replace(answer, texts=("qp", "aragraph"))],
        [replace(answer, texts=("q\udc80", "\u6771"))],
    ]  # fmt: skip
    hashes = [content_hash(examples) for examples in different]
    assert len(set(hashes)) == len(different) and all(len(value) == 16 for value in hashes)
    assert content_hash([example(0, "a", "group")]) == hashes[1]
    with pytest.raises(DataError, match="x has no"):
        check_not_empty([], Path("x"))

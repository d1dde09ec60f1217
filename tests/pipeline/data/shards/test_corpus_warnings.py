"""What the counts of a corpus say, and when it is a warning."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.data.shards.corpus_warnings import describe_unknown, unknown_share


@pytest.mark.parametrize(
    ("corpus", "share", "said"),
    [
        ({"characters": 900, "unknown": {"tokens": 0, "characters": 0}}, 0.0, ""),
        (
            {"characters": 1000, "unknown": {"tokens": 3, "characters": 10}},
            0.01,
            "3 unknown tokens stand for 10 characters, 1.000% of the text",
        ),
        (
            {"characters": 1000, "unknown": {"tokens": 3, "characters": 11}},
            0.011,
            "warning: 3 unknown tokens stand for 11 characters, 1.100% of the text; use a "
            "tokenizer of this text's scripts",
        ),
    ],
)
def test_much_unknown_text_is_a_warning(corpus: dict[str, Any], share: float, said: str) -> None:
    assert unknown_share(corpus) == share and describe_unknown(corpus) == said

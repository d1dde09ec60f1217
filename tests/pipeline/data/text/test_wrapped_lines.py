"""Hard-wrapped lines: the same text wrapped and not wrapped."""

import random
import textwrap

import pytest

from pipeline.data.text.cleaning import clean


@pytest.mark.parametrize("width", [50, 70, 100])
def test_text_wrapped_without_blank_lines_is_joined_where_lines_are_full(width: int) -> None:
    rng = random.Random(1)
    words = ["a" * rng.randint(1, 9) for _ in range(900)]
    paragraphs = [" ".join(words[start : start + 300]) for start in (0, 300, 600)]
    text = "\n".join(textwrap.fill(paragraph, width) for paragraph in paragraphs)
    assert clean([text]).texts()[0].split("\n") == paragraphs

import pytest

from pipeline.data.shards.corpus_warnings import describe_unknown, unknown_share


@pytest.mark.parametrize(
    ("characters", "tokens", "unknown", "share", "said"),
    [
        (900, 0, 0, 0.0, ""),
        (1000, 3, 10, 0.01, "3 unknown tokens stand for 10 characters, 1.000% of the text"),
        (1000, 3, 11, 0.011,
         "warning: 3 unknown tokens stand for 11 characters, 1.100% of the text"),
    ],
)  # fmt: skip
def test_much_unknown_text_is_a_warning(
    characters: int, tokens: int, unknown: int, share: float, said: str
) -> None:
    corpus = {"characters": characters, "unknown": {"tokens": tokens, "characters": unknown}}
    assert unknown_share(corpus) == share
    assert describe_unknown(corpus).partition(";")[0] == said

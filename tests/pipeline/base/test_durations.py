"""Durations in both forms, at the borders of their units."""

from pipeline.base.durations import digits_and_unit, in_one_unit, in_words

PASSED_OR_LEFT = {
    0: "0 s", 119.9: "119 s", 120: "2 min", 3599.7: "59 min", 3600: "1 h 00 min",
    3600 * 3 + 430: "3 h 07 min", 86400 * 2 - 1: "47 h 59 min",
    86400 * 2 + 3 * 3600: "2 d 03 h", 1e8: "1,157 d 09 h",
}  # fmt: skip
ESTIMATED = {
    0: "0 s", 0.0123: "12.3 ms", 0.9996: "1,000 ms", 1: "1 s", 119: "119 s", 120: "2 min",
    10_000: "2.78 h", 360_000: "4.17 days", 1e9: "31.7 years", 4e12: "126,839 years",
}  # fmt: skip


def test_durations() -> None:
    for seconds, words in PASSED_OR_LEFT.items():
        assert in_words(seconds) == words
    for seconds, words in ESTIMATED.items():
        assert in_one_unit(seconds) == words == " ".join(digits_and_unit(seconds))

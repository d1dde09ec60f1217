"""The table is the same on both pages, and is written between their markers alone."""

import pytest

from pipeline.base.errors import ConfigError
from tests.benchmarks.speed_table import END, PAGES, ROWS, START, row_line, shown, with_table


def test_both_pages_have_the_same_table_of_rows_that_are_measured() -> None:
    readme, results = (
        page.read_text("utf-8").partition(START)[2].partition(END)[0] for page in PAGES
    )
    assert readme == results and "Measured on 20" in readme
    lines = [line for line in readme.splitlines() if line.startswith("| ")]
    named = [line.split(" | ")[0].removeprefix("| ") for line in lines][1:]
    assert named == [row.what for row in ROWS.values() if row.what in named] and len(named) > 4


def test_a_row() -> None:
    assert row_line(ROWS["masks"], 1.67e9, 1.604e6) == (
        "| masks drawn, one core | 1.67 G tokens x masks/s | 1.6 M tokens x masks/s: transformers' "
        "data collator | 1,041x |"
    )


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (58.34e6, "MB/s", "58.3 MB/s"), (0.451e6, "MB/s", "0.451 MB/s"),
        (425.4e6, "tokens/s", "425 M tokens/s"), (0.72, "sequences/s", "0.72 sequences/s"),
        (99.97e6, "MB/s", "100 MB/s"),
    ],
)  # fmt: skip
def test_three_digits(value: float, unit: str, expected: str) -> None:
    assert shown(value, unit) == expected


def test_only_the_text_between_the_markers_changes() -> None:
    page = f"a\n{START}\nstale\n{END}\nb\n"
    once = with_table(page, "Measured.", ["| x | 1 | 2: y | 3x |"])
    assert once.startswith(f"a\n{START}\nMeasured.\n\n| what |") and once.endswith(f"|\n{END}\nb\n")
    assert "stale" not in once and with_table(once, "Measured.", ["| x | 1 | 2: y | 3x |"]) == once
    with pytest.raises(ConfigError):
        with_table("a\n", "Measured.", [])

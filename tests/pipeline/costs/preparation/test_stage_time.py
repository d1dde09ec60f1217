"""Time of units of work on some workers, and what is said of it."""

from pipeline.costs.preparation.stage_time import Work, cpu_seconds, describe_time, stage_seconds


def test_no_unit_is_divided() -> None:
    for units, workers, seconds in (
        ([10.0], 1, 10), ([10.0], 64, 10), ([1.0] * 64, 16, 4), ([1.0] * 9, 8, 2),
        ([8.0, 1.0, 1.0, 1.0], 2, 8), ([5.0, 4.0, 3.0, 3.0], 2, 8),
    ):  # fmt: skip
        works = [Work("prepare", "a split", each) for each in units]
        assert stage_seconds(works, workers) == seconds

    equal = Work("prepare", "a split", 2.0, 1e6), Work("prepare", "a file", 9.0)
    assert stage_seconds(equal, 10) == cpu_seconds(equal) / 10 == (2e6 + 9) / 10
    assert stage_seconds([*equal, Work("prepare", "a book", 1e6)], 10) == 1e6
    assert stage_seconds([equal[1], Work("prepare", "a split", 2.0, 2.4)], 10) == 9


def test_what_bounds_the_time_is_named() -> None:
    dump = Work("extract", "pages.xml.bz2", 600)
    splits = [Work("prepare", "a split", 1, 30), *[Work("prepare", "a split", 1)] * 10]
    said = describe_time([dump, *splits], 8)
    assert said.startswith("about 10 min (10 min to extract) for 8 workers")
    assert said.endswith("bound by pages.xml.bz2, which one worker does alone in 10 min")
    said = describe_time(splits, 8)
    assert said.startswith("about 8 s for 8 workers") and said.endswith("bound by the cores")
    assert "bound by the cores" in describe_time([dump, *splits], 1)

from pipeline.planning.phases import LATER_ORDER
from pipeline.training.checkpoints.data_position import (
    Reading,
    describe_skipped,
    reading_of,
    with_reading,
)

READINGS = (Reading(16, 60, ((3, 5), (9, 10))), Reading(32, 4))


def test_one_of_each_length() -> None:
    assert reading_of(READINGS, 32) == Reading(32, 4)
    assert reading_of(READINGS, 64) == Reading(64, 0, ())
    assert reading_of(READINGS, 32 + LATER_ORDER) == Reading(32 + LATER_ORDER)
    assert with_reading(READINGS, Reading(24, 1)) == (READINGS[0], Reading(24, 1), READINGS[1])
    assert with_reading(READINGS, Reading(16, 61)) == (Reading(16, 61), READINGS[1])


def test_skipped_places_in_words() -> None:
    assert describe_skipped(READINGS) == ["[3, 5) of 16", "[9, 10) of 16"]
    assert describe_skipped(READINGS[:1]) == ["[3, 5)", "[9, 10)"]

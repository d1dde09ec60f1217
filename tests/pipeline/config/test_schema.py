from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from pipeline.base.errors import ConfigError
from pipeline.config.schema import (
    HasRules,
    Legacy,
    Range,
    Setting,
    check,
    entry_type,
    legacy_values,
    setting_types,
    settings_of,
)
from tests.remedies import problems_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Oven:
    degrees: Annotated[float, Range("[50, 300)")]
    minutes: Annotated[int, Range("[1, inf)"), Legacy(30)]

    def contradictions(self) -> Iterator[str]:
        if self.degrees > 200 and self.minutes > 60:
            yield f"oven.degrees={self.degrees} for {self.minutes} minutes burns it; lower it"


@dataclass(frozen=True, kw_only=True, slots=True)
class Guest:
    slices: Annotated[int, Range("[0, 2**3]")]


@dataclass(frozen=True, kw_only=True, slots=True)
class Party:
    mode: Literal["tea", "dinner"]
    oven: Oven
    guests: tuple[Guest, ...]
    music: Annotated[bool, Legacy(False)]

    def contradictions(self) -> Iterator[str]:
        if self.mode == "tea" and len(self.guests) > 1:
            yield f"mode=tea is for one guest, there are {len(self.guests)}; set mode=dinner"


def party(degrees: float = 180.0, minutes: int = 40, *slices: int, mode: str = "tea") -> Party:
    return Party(
        mode=mode,  # type: ignore[arg-type]
        oven=Oven(degrees=degrees, minutes=minutes),
        guests=tuple(Guest(slices=each) for each in slices),
        music=False,
    )


def test_a_range_includes_only_square_bounds_and_has_words() -> None:
    for interval, inside, outside in (
        ("[0, 1]", [0, 0.5, 1], [-1e-9, 1.1]),
        ("(0, 1)", [1e-300], [0, 1, float("nan")]),
        ("[261, 2**32)", [261, 2**32 - 1], [260, 2**32]),
        ("[1, inf)", [1, 10**30], [0, float("inf"), float("nan")]),
    ):
        assert all(value in Range(interval) for value in inside), interval
        assert not any(value in Range(interval) for value in outside), interval
        words = [Range(each).in_words for each in ("[0, 1)", "[1, inf)", "(0, inf)")]
        assert words == ["in [0, 1)", "of at least 1", "above 0"]


def test_settings_are_the_leaves_in_field_order() -> None:
    assert settings_of(Party) == {
        "mode": Setting(Literal["tea", "dinner"], None, None),
        "oven.degrees": Setting(float, Range("[50, 300)"), None),
        "oven.minutes": Setting(int, Range("[1, inf)"), Legacy(30)),
        "guests": Setting(tuple[Guest, ...], None, None),
        "music": Setting(bool, None, Legacy(False)),
    }
    assert list(setting_types(Party)) == ["mode", "oven.degrees", "oven.minutes", "guests", "music"]
    assert setting_types(Party)["oven.minutes"] is int
    assert legacy_values(Party) == {"oven.minutes": 30, "music": False}
    assert (entry_type(tuple[Guest, ...]), entry_type(int)) == (Guest, None)


def test_legal_values_pass_and_a_legacy_value_is_not_a_default() -> None:
    check(party(299.9, 60, 8))
    assert isinstance(party(), HasRules) and not isinstance(Guest(slices=1), HasRules)
    with pytest.raises(TypeError, match="minutes"):
        Oven(degrees=180.0)  # type: ignore[call-arg]


BURNS = "oven.degrees=250 for 90 minutes burns it; lower it"
TEA = "mode=tea is for one guest, there are 2; set mode=dinner"


def test_all_problems_are_in_one_error() -> None:
    for found, *problems in (
        (party(300), "oven.degrees=300 "),
        (party(180, 40, 9), "guests.0.slices=9 "),
        (party(250, 90), BURNS),
        (party(180, 40, 1, 1), TEA),
        (party(250, 90, 0, -1), "guests.1.slices=-1 ", BURNS, TEA),
        (party(300, 90, 0, 1), "oven.degrees=300 ", TEA),  # a rule about it adds nothing
        (party(float("inf"), 90, 0, 1), "oven.degrees=inf "),  # rules need finite numbers
    ):
        with pytest.raises(ConfigError) as error:
            check(found)
        said = problems_of(error.value)
        assert all(map(str.startswith, said, problems)) and len(said) == len(problems)
        assert all(problem in str(error.value) for problem in problems)

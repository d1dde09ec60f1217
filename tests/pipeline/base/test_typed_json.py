import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from pipeline.base.errors import DataError
from pipeline.base.typed_json import (
    as_json,
    build,
    check_finite,
    convert,
    name_damage,
    read_object,
    require,
)


class Place(NamedTuple):
    row: int
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Part:
    name: str
    rate: float


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    place: Place
    shapes: dict[str, tuple[int, ...]]
    plans: Sequence[Mapping[str, Any]]
    count: int = 3


VALUES: dict[str, Any] = {
    "parts": [{"name": "a", "rate": 1}], "place": [5, [[1, 2]]], "shapes": {"w": [2, 3]},
    "plans": [{"x": None}],
}  # fmt: skip


def test_values_become_what_the_annotations_say() -> None:
    found = build(Whole, VALUES)
    assert found == Whole((Part("a", 1.0),), Place(5, ((1, 2),)), {"w": (2, 3)}, [{"x": None}], 3)
    assert build(Whole, VALUES | {"count": 4}).count == 4
    # numbers may be written as editors do
    numbers = [convert(int, 1e3), convert(float, 2), convert(tuple[int, ...], (1.0, 2))]
    assert numbers == [1000, 2.0, (1, 2)] and [*map(type, numbers)] == [int, float, tuple]
    assert convert(Literal["bake", "grill"], "grill") == "grill"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": "x"}, "count is text, not a whole number"),
        ({"count": True}, "count is true or false, not a whole number"),
        ({"count": 3.5}, "count is a number, not a whole number"),
        ({"other": 1}, "other is unknown"),
        ({"parts": {}}, "parts is an object, not a list"),
        ({"parts": [{"name": "a"}]}, "parts[0].rate is missing"),
        ({"parts": [{"name": None, "rate": 1}]}, "parts[0].name is null, not text"),
        ({"place": [5]}, "place has 1 entries, not 2"),
        ({"place": [5, [[1]]]}, "place[1][0] has 1 entries, not 2"),
        ({"shapes": {"w": [2, "x"]}}, "shapes.w[1] is text, not a whole number"),
        ({"plans": [3]}, "plans[0] is a whole number, not an object"),
    ],
)
def test_the_first_wrong_entry_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        build(Whole, VALUES | change)


def test_other_values_are_refused() -> None:
    check_finite([0.0, -1e300])
    for number in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="a number that is not finite"):
            check_finite([1.0, number])
    mode = Literal["bake", "grill"]
    with pytest.raises(ValueError, match=r"^oven is 'fry', not one of bake, grill$"):
        convert(mode, "fry", "oven")
    with pytest.raises(ValueError, match=r"^it is a list, not text$"):
        convert(mode, ["grill"])
    require({"a": 1, "b": "x"}, {"a": float, "b": str}, "it")
    with pytest.raises(ValueError, match=r"it\.c is missing"):
        require({"a": 1}, {"c": int}, "it")


def test_damage_is_named_with_the_file_and_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for content, damage in (
        (b"", "it is empty; "),
        (b"{}", "it.a is missing; "),
        (b"[]", "it holds a list, not an object; "),
        (b"null", "it holds null, not an object; "),
        (b'{"a": 1', "Expecting"),
        (b"\xff\xfe\x00", "it is not text"),
        (b"[" * 100_000, "it is nested too deeply"),
    ):
        path.write_bytes(content)
        match = rf"^{re.escape(f'{path} is damaged: {damage}')}.*copy it again$"
        with pytest.raises(DataError, match=match), name_damage(path, "copy it again"):
            require(read_object(path), {"a": int}, "it")


def test_numbers_that_json_lacks_are_written_as_null() -> None:
    values = {"a": [1.5, math.nan, (math.inf,)], "b": {"c": -math.inf}, "d": 3, "e": "NaN"}
    written = as_json(values)
    assert json.loads(written, parse_constant=pytest.fail) == {
        "a": [1.5, None, [None]], "b": {"c": None}, "d": 3, "e": "NaN",
    }  # fmt: skip
    plain = {"a": 0.1, "b": "\u00e9", "c": [1, 2.0], "d": None, "e": True}
    assert as_json(plain, indent=1) == json.dumps(plain, indent=1)

"""Damages of a JSON file: to its bytes, and to single entries."""

import copy
from collections.abc import Iterator
from typing import Any

BYTES: dict[str, bytes] = {
    "empty": b"", "binary": bytes(range(256)), "list": b"[]", "text": b'"x"', "null": b"null",
    "number": b"3", "object": b"{}", "deep": b"[" * 100_000, "nuls": bytes(99),
}  # fmt: skip
WRONG: tuple[Any, ...] = ([], {}, "x", None, 7.5, -1, True)


def damaged(content: bytes) -> Iterator[tuple[str, bytes]]:
    """(what, content) for each way to damage a file, without its entries."""
    yield "truncated", content[: len(content) // 2]
    yield from BYTES.items()


def changed(values: Any) -> Iterator[tuple[str, Any]]:
    """(what, values) with one entry removed or of a wrong type, at every place in a tree; of a
    list's entries only the first is changed."""
    for place in _places(values, ()):
        named = ".".join(map(str, place))
        for wrong in WRONG:
            yield f"{named}={wrong!r}", _with(values, place, wrong)
        without = copy.deepcopy(values)
        del _at(without, place[:-1])[place[-1]]
        yield f"no {named}", without


def _places(values: Any, above: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    keys = list(values) if isinstance(values, dict) else [0] * bool(values)
    for key in keys if isinstance(values, dict | list) else ():
        yield (*above, key)
        yield from _places(values[key], (*above, key))


def _at(values: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        values = values[key]
    return values


def _with(values: Any, place: tuple[Any, ...], wrong: Any) -> Any:
    found = copy.deepcopy(values)
    _at(found, place[:-1])[place[-1]] = wrong
    return found

"""A recorded case, the file that holds it, and how a result is compared with it.

A case is a name, a function that runs commands in a new folder and returns plain JSON, and whether
`make test` has time for it. `KIND/NAME` is a line of KIND.json; a case without a slash is a file of
its own, with a line for each of its keys.
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

GOLDEN = Path(__file__).parent
DIGITS = 8
"""Of a float in a file."""


@dataclass(frozen=True)
class Case:
    """One recorded result."""

    name: str
    measure: Callable[[Path], Any]
    """Runs the case in a new folder."""
    slow: bool = False
    tolerance: float = 0.0
    """Largest relative difference of floats: above 0 if the processor decides their last bits."""

    def run(self, work: Path) -> Any:
        """The result, as JSON gives it back."""
        with mock.patch.dict(os.environ, TENFOLD_ROOT=str(work / "root")):
            return json.loads(json.dumps(self.measure(work)))


def recorded(name: str) -> Any:
    """The recorded result of a case; None if there is none."""
    kind, slash, line = name.partition("/")
    path = GOLDEN / f"{kind}.json"
    content = json.loads(path.read_bytes()) if path.exists() else None
    return content.get(line) if slash and content else content


def write(name: str, result: Any) -> None:
    """Record a result in its file, which stays sorted."""
    kind, slash, line = name.partition("/")
    content = ((recorded(kind) or {}) | {line: result}) if slash else result
    lines = (f"{json.dumps(key)}: {json.dumps(_rounded(content[key]))}" for key in sorted(content))
    (GOLDEN / f"{kind}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def differences(expected: Any, found: Any, tolerance: float = 0.0) -> list[str]:
    """A line for each key whose value differs."""
    before, after = dict(_leaves(expected)), dict(_leaves(found))
    return [
        f"{key}: recorded {before.get(key, 'nothing')!r}, now {after.get(key, 'nothing')!r}"
        for key in sorted(before.keys() | after.keys())
        if not (key in before and key in after and _alike(before[key], after[key], tolerance))
    ]


def _alike(left: Any, right: Any, tolerance: float) -> bool:
    if isinstance(left, float) and isinstance(right, (int, float)):
        return math.isclose(left, right, rel_tol=tolerance, abs_tol=tolerance / 100)
    return bool(left == right)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its path; a list of texts is a set, so that one more is one difference."""
    inside: Iterable[tuple[object, Any]] = ()
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        inside = ((item, True) for item in value)
    elif isinstance(value, list):
        inside = enumerate(value)
    else:
        yield path, value
        return
    for key, item in inside:
        yield from _leaves(item, f"{path}[{key}]")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value

"""Points where a process may die: around every sync and rename, and midway in every write."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Points:
    """Counts the points, and dies at number `die_at`."""

    def __init__(self, die_at: int, only: Path | None = None) -> None:
        """only: count what happens to paths below it."""
        self.die_at = die_at
        self.only = str(only) if only else ""
        self.passed = 0
        self.lock = threading.Lock()  # threads pass one at a time, and all of them die

    def pass_one(self, before_dying: Callable[[], object] = lambda: None) -> None:
        with self.lock:
            if self.passed == self.die_at:
                before_dying()
                os._exit(137)
            self.passed += 1

    def counts(self, path: object) -> bool:
        if isinstance(path, int):
            path = Path(f"/proc/self/fd/{path}").readlink()
        return str(path).startswith(self.only)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            if not self.counts(arguments[0]):
                return function(*arguments, **options)
            self.pass_one()
            result = function(*arguments, **options)
            self.pass_one()
            return result

        return wrapped

    def install(self) -> None:
        for name in ("fsync", "rename", "replace", "mkdir", "unlink", "rmdir"):
            setattr(os, name, self.around(getattr(os, name)))
        original = Path.open

        def open_dying(path: Path, mode: str = "r", *rest: Any, **options: Any) -> Any:
            file = original(path, mode, *rest, **options)
            return Dying(file, self) if mode == "wb" and self.counts(path) else file

        Path.open = open_dying  # type: ignore[method-assign, assignment]


class Dying:
    """A file whose process can die with half of a write on disk."""

    def __init__(self, file: Any, points: Points) -> None:
        self.file, self.points = file, points

    def write(self, data: Any) -> None:
        def half() -> None:
            self.file.write(bytes(data)[: len(data) // 2])
            self.file.flush()

        self.points.pass_one(half)
        self.file.write(data)

    def __enter__(self) -> Dying:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

"""Work that is finished once: what is done is a file, and a lock says who does it.

1. A piece of work is done when its file is there. The file is written last and appears whole, so a
   kill leaves the work done or not done, never half done.
2. Who does the work holds its lock, which the kernel releases when a process dies. Others wait and
   find the file (`only_once`), or do something else meanwhile (`hold_lock`).
3. All work of an output has the same settings: the first process records them (`record_once`), and
   a later one that has others is refused (`check_same_work`). Extraction needs no such file, as the
   name of what it makes has a hash of all that decides the content.

Where locks exclude nobody, two processes may do the same work. Then the first file, or folder
(base/publish), stays; both have the same content.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pipeline.base.errors import ConfigError
from pipeline.base.files import make_directory, one_at_a_time, open_lock, try_lock, whole_file
from pipeline.base.typed_json import name_damage, read_object


def lock_of(target: Path) -> Path:
    """The lock that `only_once` holds while it writes a file."""
    return target.with_name(f".{target.stem}.lock")


@contextmanager
def only_once(target: Path, instead: Path | None = None) -> Iterator[Path | None]:
    """A temporary path that becomes `target`, as with `whole_file`; None if `target` exists.

    If several processes need the same file, one writes it and the others wait. instead: another
    file that makes `target` superfluous.
    """
    with one_at_a_time(lock_of(target)):
        # Only now: the lock's last holder may have written the file while this process waited.
        if target.exists() or (instead is not None and instead.exists()):
            yield None
            return
        # Where locks exclude nobody, another process may be reading the file by then.
        with whole_file(target, replaces=False) as temporary:
            yield temporary


@contextmanager
def hold_lock(lock: Path) -> Iterator[IO[Any] | None]:
    """Hold the lock of a piece of work, for child processes too; None if another process does."""
    make_directory(lock.parent, "name another --output")
    with open_lock(lock) as file:
        # None is a file system without locks: doing the work twice is better than never.
        yield None if try_lock(file) is False else file


def record_once(path: Path, settings: Mapping[str, Any], remedy: str) -> dict[str, Any]:
    """Write the settings that work is done with unless the file exists; returns its content.

    Raises DataError with the remedy if it is damaged.
    """
    with only_once(path) as temporary:
        if temporary is not None:
            temporary.write_text(json.dumps(settings, indent=1))
    with name_damage(path, remedy):
        return read_object(path)


def check_same_work(output: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise ConfigError naming the first setting in which the work of an output would differ.

    before: as recorded, so of JSON's types, as `now` must be.
    """
    # A dict keeps its order, so the same setting is named in every run.
    for name in {**now, **before}:
        if before.get(name) != now.get(name):
            raise ConfigError(
                f"{output} was made with {name} {before.get(name)!r}, not {now.get(name)!r}; "
                "repeat that, or give another --output"
            )

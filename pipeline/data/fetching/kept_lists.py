"""A publisher's list of files, kept beside the files once it was read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.errors import DataError
from pipeline.files import make_directory, one_at_a_time, write_whole

LIST = ".list.json"

Entries = list[dict[str, Any]]


def kept_list(
    folder: Path,
    read: Callable[[], Entries],
    check: Callable[[Entries], Entries],
    *,
    recording: bool,
) -> Entries:
    """The list kept in `folder`, or else what `read` returns, which is kept if `recording`.

    check: returns the entries, or raises ValueError, TypeError or KeyError for other ones. If
    several processes want the list, one reads it and the others wait.
    """
    kept = folder / LIST
    if not kept.exists():
        if not recording:
            return check(read())
        make_directory(folder)
        with one_at_a_time(folder / ".list.lock"):
            if not kept.exists():
                entries = check(read())
                write_whole(kept, json.dumps(entries, indent=0).encode())
                return entries
    try:
        found = json.loads(kept.read_bytes())
        if not isinstance(found, list) or not found:
            raise ValueError(found)
        return check(found)
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{kept} is damaged; remove it to read the list again") from error

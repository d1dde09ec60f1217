"""Lists what is kept below $TENFOLD_ROOT besides shards, and removes what no shards need.

Nothing is listed for removal unless all of these hold:

1. No complete shards were made of it, and no shards are unfinished or unclear.
2. No process holds a lock in its folder.
3. It was not used in the last day: a command that trains a tokenizer, say, holds no lock.
4. It can be made again: the raw file of an extracted one is still in its place, or published.

Raw text is never listed for removal, wherever it came from.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from pipeline.base.errors import DataError
from pipeline.base.files import is_locked, open_lock, try_lock
from pipeline.data.leftovers.made_shards import MadeShards
from pipeline.data.selection.decisions import read_spans
from pipeline.data.selection.signature_store import SIGNATURES
from pipeline.execution.ledger import lock_of
from pipeline.ingest.documents.parquet import extracted_hash
from pipeline.ingest.documents.unchanged import content_file, known_content
from pipeline.ingest.extraction.extract import FRAMES_FOLDER
from pipeline.remote.kept_lists import LIST

_RECENT_SECONDS = 86_400
_NAMED = 2
"""Shards that are named as the reason to keep something."""
_PASSING = (".copy", ".part")
"""Endings of hidden copies of published files, see `remote.copies`."""


@dataclass(frozen=True, slots=True)
class StoredItem:
    """A file or folder, and whether it is kept."""

    path: Path
    size: int
    """Bytes, with the files that go with it."""
    used_at: float
    """Time at which it was last written, or used if that is known; in seconds since 1970."""
    what: str
    """Its description, and the way to make it again."""
    kept: str = ""
    """The reason to keep it; empty if no shards need it."""
    lock: Path | None = None
    """The lock of what writes it; None if it is not to be removed."""
    more: tuple[Path, ...] = ()
    """Files that are removed with it."""


def find_items(root: Path, made: MadeShards) -> list[StoredItem]:
    """Everything below $TENFOLD_ROOT that `prepare` keeps besides shards and tokenizers."""
    documents, downloads = root / "documents", root / "downloads"
    signatures = root / SIGNATURES
    frames = documents / FRAMES_FOLDER
    folders = [documents, frames, documents / "surveys", documents / "decisions", signatures]
    doubts = [*made.doubts]
    # 2. one lock keeps everything: a stage reads what others wrote
    for folder in [*folders, *_folders(signatures)]:
        if any(is_locked(path) for path in _files(folder, ".*.lock")):
            place = signatures if signatures in (folder, folder.parent) else documents
            doubts.append(f"another process is at work in {place}")

    def judged(item: StoredItem, hashes: Sequence[str] = ()) -> StoredItem:
        return _judged(item, made.need(hashes), doubts)

    items = [
        *_extracted(documents, judged),
        *(judged(_index(path)) for path in _files(frames, "[!.]*.parquet")),
        *_remains(documents, judged),
        *_selection(documents, judged),
        *(judged(_signatures(folder, made)) for folder in _folders(signatures)),
        *_copies(downloads, judged),
        *_raw_text(downloads),
    ]
    items += [_item(path, "work folder of complete shards", path / "lock") for path in made.work]
    links = [path for path in (*folders, downloads) if path.is_symlink()]
    return items + [StoredItem(path, 0, 0, "folder", "it is a link") for path in links]


Judge = Callable[..., StoredItem]
"""Item and hashes of what it was made of -> the item with the reason to keep it, if there is."""


def _judged(item: StoredItem, needed_by: list[str], doubts: list[str]) -> StoredItem:
    """The item with the first of the reasons to keep it, if there is one."""
    reason = item.kept
    if needed_by:  # 1. outranks every other reason
        reason = f"made of it: {_name(needed_by)}"
    elif not reason and doubts:
        reason = doubts[0]
    elif not reason and time.time() - item.used_at < _RECENT_SECONDS:  # 3. the last resort
        reason = "used in the last day, maybe by a command that still runs"
    return replace(item, kept=reason)


def _name(shards: list[str]) -> str:
    """The first of some shards, and how many more there are."""
    named, others = ", ".join(shards[:_NAMED]), len(shards) - _NAMED
    return named + (f" and {others:,} more" if others > 0 else "")


def _item(
    path: Path, what: str, lock: Path | None, more: tuple[Path, ...] = (), kept: str = ""
) -> StoredItem:
    files = [path, *more]
    if path.is_dir():
        files = [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
    states = [file.lstat() for file in files]  # of a link itself, not of its target
    used_at = max(state.st_mtime for state in [*states, path.lstat()])
    return StoredItem(path, sum(state.st_size for state in states), used_at, what, kept, lock, more)


def _files(folder: Path, pattern: str) -> list[Path]:
    """Plain files in a folder, unless that or they are links."""
    if folder.is_symlink() or folder.parent.is_symlink() or not folder.is_dir():
        return []
    return sorted(path for path in folder.glob(pattern) if path.is_file() and not path.is_symlink())


def _folders(folder: Path) -> list[Path]:
    """Plain folders in a folder, likewise; hidden ones are temporary."""
    if folder.is_symlink() or folder.parent.is_symlink() or not folder.is_dir():
        return []
    return sorted(path for path in folder.glob("[!.]*") if path.is_dir() and not path.is_symlink())


def _extracted(documents: Path, judged: Judge) -> Iterator[StoredItem]:
    for path in _files(documents, "[!.]*.parquet"):
        about = content_file(path)
        try:
            hashes = [extracted_hash(str(path))]
        except (DataError, KeyError, TypeError, OSError, pa.ArrowException):
            yield _item(path, "file", None, kept="no command of this version extracted it")
            continue
        more = (about,) if about.is_file() and not about.is_symlink() else ()
        what, kept = _source_of(path)
        yield judged(_item(path, what, lock_of(path), more, kept), hashes)


def _index(path: Path) -> StoredItem:
    """The index of the places at which a compressed file can be read."""
    about = content_file(path)
    more = (about,) if about.is_file() and not about.is_symlink() else ()
    return _item(path, "frames of a compressed file; would be found again", lock_of(path), more)


def _source_of(path: Path) -> tuple[str, str]:
    """The source that can give an extracted file again, and the reason to keep it without one."""
    places = [Path(str(state[0])) for state in known_content(path).states if state]
    here = [place for place in places if place.exists()]
    if here:
        size = here[0].stat().st_size
        return f"extracted; again from {here[0]} ({size / 1e6:,.1f} MB)", ""
    if any(place.name.endswith(_PASSING) for place in places):
        return "extracted; its raw file would be fetched again", ""
    gone = f"its raw file is not at {places[-1]}" if places else "its raw file is unknown"
    return "extracted", f"{gone}, so it may be the only copy"


def _remains(documents: Path, judged: Judge) -> Iterator[StoredItem]:
    """Units of unfinished extractions, temporary files, and what belongs to files that are gone."""
    extracted = (documents, documents / FRAMES_FOLDER)
    for path in (path for folder in extracted for path in _files(folder, ".*.parquet")):
        yield judged(_item(path, "part of an unfinished extraction", lock_of(path)))
    for folder in (*extracted, documents / "surveys"):
        for path in _files(folder, ".*.tmp"):
            target = path.with_name(path.name.removeprefix(".").rsplit(".", 2)[0])
            yield judged(_item(path, "temporary file", lock_of(target)))
    for path in (path for folder in extracted for path in _files(folder, ".*.content.json")):
        target = path.with_name(path.name.removeprefix(".").removesuffix(".content.json"))
        target = target.with_name(f"{target.name}.parquet")
        if not target.exists():
            yield judged(_item(path, "about an extracted file that is gone", lock_of(target)))


def _selection(documents: Path, judged: Judge) -> Iterator[StoredItem]:
    for path in _files(documents / "surveys", "[!.]*.parquet"):
        yield judged(_item(path, "survey for --dedup and --filter", lock_of(path)), _read_by(path))
    for path in _folders(documents / "decisions"):
        hashes = [one for file in _files(path, "*.parquet") for one in _read_by(file)]
        item = _item(path, "decisions of --dedup and --filter", lock_of(path))
        yield judged(item, hashes)


def _signatures(folder: Path, made: MadeShards) -> StoredItem:
    """A store of signatures, which is needed while any of its shards is there."""
    shards = made.lineages.get(folder.name, [])
    kept = f"of {_name(shards)}" if shards else ""
    return _item(folder, "signatures for --against", lock_of(folder), kept=kept)


def _read_by(path: Path) -> list[str]:
    """Hashes of what a survey or decisions were made of; none if it is damaged."""
    try:
        return [span.xxh3_64 for span in read_spans(path)]
    except (KeyError, TypeError, ValueError, OSError, pa.ArrowException):
        return []


def _copies(downloads: Path, judged: Judge) -> Iterator[StoredItem]:
    """Copies of published files that were to be removed once they were extracted."""
    for path in _below(downloads):
        if path.name.startswith(".") and path.name.endswith(_PASSING):
            lock = path.with_name(f"{path.name.rsplit('.', 2)[0]}.lock")
            item = _item(path, "copy of a published file; would be fetched again", lock)
            yield judged(item)


def _raw_text(downloads: Path) -> Iterator[StoredItem]:
    """Files that were downloaded to be kept, by their first folder, and lists."""
    groups: dict[Path, list[Path]] = {}
    for path in _below(downloads):
        top = downloads / path.relative_to(downloads).parts[0]
        if path.name == LIST:
            groups.setdefault(path, []).append(path)
        elif not path.name.startswith("."):
            groups.setdefault(top, []).append(path)
    for top, files in groups.items():
        states = [file.stat() for file in files]
        what, kept = (
            f"{len(files):,} file(s)",
            "raw text; remove it yourself if you no longer need it",
        )
        if top.name == LIST:
            what, kept = "publisher's list", "later runs find the same files by it"
        yield StoredItem(
            top, sum(one.st_size for one in states), max(one.st_mtime for one in states), what, kept
        )


def _below(folder: Path) -> Iterator[Path]:
    """Plain files below a folder, through no link."""
    if folder.is_symlink():
        return
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield path


def remove_item(item: StoredItem, root: Path) -> str:
    """Remove an item under its lock; returns why it was left, empty if it is gone.

    Raises DataError if it cannot be removed.
    """
    if item.kept or item.lock is None:
        return item.kept
    base = root.resolve()
    files = (item.path, *item.more)
    # asked again: the list may be old, and rmtree must not leave the root
    if any(path.is_symlink() or base not in path.resolve().parents for path in files):
        return f"it is a link, or outside {root}"
    try:
        with open_lock(item.lock) as lock:
            if (held := try_lock(lock)) is not True:
                return "another process uses it" if held is False else "its disk has no locks"
            # 3. holds for the moment of the removal, too
            if any(path.is_file() and path.stat().st_mtime > item.used_at for path in files):
                return "it was used meanwhile"
            for path in files:
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            item.lock.unlink(missing_ok=True)  # a process that waits for it makes the file again
    except OSError as error:
        raise DataError(
            f"cannot remove {item.path}: {error.strerror}; fix this and rerun"
        ) from error
    return ""

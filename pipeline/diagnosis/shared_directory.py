"""Tests of a directory that the nodes share: renames, O_EXCL, locks, maps, syncs, room.

All ranks take part; the first of each node acts for it. Files are made in a folder of their own,
which is removed at the end.
"""

from __future__ import annotations

import mmap
import os
import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path

from pipeline.base.errors import CheckpointError
from pipeline.base.files import open_lock, try_lock
from pipeline.config.run import Run
from pipeline.diagnosis.checks import FAIL, WARN, Check, at_least, judge, skip
from pipeline.diagnosis.exchange import Exchange
from pipeline.training.run_directory.rename_check import check_renames

GB = 1e9
_RACES = 50  # a single race could go well by luck
_SYNCS = 8
_PATIENCE_SECONDS = 10.0
_SLOW_SECONDS = 1.0
_FEW_SYNCS = 10.0
_FEW_INODES, _SOME_INODES = 500, 20_000
LITTLE_ROOM, SOME_ROOM = 100e6, 10 * GB
_STATE_BYTES = 12
"""Bytes per weight: the weight and two moments in fp32, as checkpoints hold them."""
_OLD, _NEW = b"old" * 2000, b"new" * 2000  # more than a page


def check_output_directory(
    ranks: Exchange, output: Path, needed: float = 0.0, planned: float = 0.0
) -> list[Check]:
    """The checks of the directory that a run is written to. Collective.

    output: it need not exist, then its nearest parent is tested; needed: bytes of one checkpoint;
    planned: of all that the run keeps at a time, as `pipeline.plan` counts them.
    """
    place = _existing(output)
    folder = Path(str(ranks.broadcast(str(_make_folder(place)) if _is_writer(ranks) else "")))
    if folder == Path():
        return [_unwritable(output, place)] if _is_writer(ranks) else []
    try:
        found = _run_tests(ranks, output, folder)
        if _is_writer(ranks):
            found += [*_check_alone(folder), *_check_room(place, needed, planned)]
    finally:
        ranks.barrier()  # others may still look at its files
        if _is_writer(ranks):
            shutil.rmtree(folder, ignore_errors=True)
    return found


def _run_tests(ranks: Exchange, output: Path, folder: Path) -> list[Check]:
    """The tests in which several nodes take part."""
    first = ranks.placement.is_first_on_node
    seen = _wait_for_rename(ranks, folder)
    missing = first and seen is None
    # all ranks stop here: the tests below are collective
    if ranks.broadcast(any(ranks.gather(missing))):
        if not missing:
            return []
        return [
            judge(
                "shared directory",
                f"{output}: a new file is not seen here",
                FAIL,
                f"within {_PATIENCE_SECONDS:.0f} s",
                "mount the file system here too, or name an --output that all nodes share",
            )
        ]
    found = []
    if first and seen is not None:
        wrong = WARN if seen > _SLOW_SECONDS else ""
        found.append(
            judge(
                "shared directory",
                f"{output}: a rename is seen after {seen * 1000:.0f} ms",
                wrong,
                f"at most {_SLOW_SECONDS:.0f} s",
                "expect stale reads; ask for another file system",
            )
        )
    for check in (_replace(ranks, folder), _race(ranks, folder), _lock(ranks, folder)):
        found += [check] if first else []
    return found


def _is_writer(ranks: Exchange) -> bool:
    return ranks.placement.rank == 0


def _existing(path: Path) -> Path:
    path = path.absolute()
    return next((level for level in (path, *path.parents) if level.is_dir()), Path("/"))


def _make_folder(place: Path) -> Path | str:
    folder = place / f".doctor-{secrets.token_hex(8)}"
    try:
        folder.mkdir(mode=0o700)
        (folder / "new").write_bytes(_OLD)
        (folder / "new").rename(folder / "named")
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        return ""
    return folder


def _unwritable(output: Path, place: Path) -> Check:
    reason = "cannot be written"
    free = os.statvfs(place)
    if free.f_bavail * free.f_frsize < LITTLE_ROOM:
        reason = f"{free.f_bavail * free.f_frsize / 1e6:.3g} MB free"
    return judge(
        "shared directory", f"{output}: {reason}", FAIL, "writable",
        "free some space, give access, or name another --output",
    )  # fmt: skip


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _wait_for(path: Path, content: bytes) -> float | None:
    """Seconds until `path` has `content`; None if it does not in time."""
    start = time.monotonic()
    while (seconds := time.monotonic() - start) < _PATIENCE_SECONDS:
        if _read(path) == content:
            return seconds
        time.sleep(0.005)
    return None


def _wait_for_rename(ranks: Exchange, folder: Path) -> float | None:
    ranks.barrier()
    return _wait_for(folder / "named", _OLD) if ranks.placement.is_first_on_node else None


def _replace(ranks: Exchange, folder: Path) -> Check:
    """A file that another node replaces: new opens see the new one, old maps the old one."""
    name, path = "mmap after replace", folder / "named"
    kept = None
    if ranks.placement.is_first_on_node:
        with path.open("rb") as file:
            kept = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        kept[:]  # read now, as training has read what it uses
    ranks.barrier()
    if _is_writer(ranks):
        (folder / "next").write_bytes(_NEW)
        (folder / "next").replace(path)
    ranks.barrier()
    if kept is None:
        return skip(name, "")
    seen = _wait_for(path, _NEW)
    whole = _child_reads(kept, _OLD)
    kept.close()
    if seen is None or not whole:
        value = "the old file is seen" if seen is None else "a mapped file changed"
        return judge(name, value, FAIL, "as on a local disk", "use another file system")
    return judge(
        name, f"new file seen after {seen * 1000:.0f} ms, old map unchanged",
        WARN if seen > _SLOW_SECONDS else "", f"at most {_SLOW_SECONDS:.0f} s",
        "expect stale reads; ask for another file system",
    )  # fmt: skip


def _child_reads(kept: mmap.mmap, expected: bytes) -> bool:
    """True if a map has these bytes; a child reads it, because a lost page ends the process."""
    child = os.fork()
    if not child:
        # not exit(): the child must not run the `finally` above, which removes the folder
        os._exit(0 if kept[:] == expected else 1)
    return os.waitpid(child, 0)[1] == 0


def _race(ranks: Exchange, folder: Path) -> Check:
    """Files that all nodes create at once: exactly one of them may succeed with each."""
    won = []
    ranks.barrier()
    for number in range(_RACES if ranks.placement.is_first_on_node else 0):  # none on other ranks
        with suppress(FileExistsError):
            os.close(os.open(folder / f"race-{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            won.append(number)
    winners = [number for numbers in ranks.gather(won) for number in numbers]
    twice = ranks.broadcast(len(winners) - len(set(winners)))
    return judge(
        "exclusive creation", f"{twice} of {_RACES} files created twice", FAIL if twice else "",
        "none", "use another file system: two runs could write one directory",
    )  # fmt: skip


def _lock(ranks: Exchange, folder: Path) -> Check:
    """Check that a lock that rank 0 holds is seen by the others, and by a second open here."""
    path = folder / "lock"
    if _is_writer(ranks):
        with open_lock(path) as file:
            held = ranks.broadcast(try_lock(file))
            # flock belongs to the open file, so this one competes with the first
            with open_lock(path) as again:
                seen = try_lock(again) is False
            ranks.barrier()  # held until all have looked
    else:
        held = ranks.broadcast(None)
        seen = True
        if ranks.placement.is_first_on_node:
            with suppress(OSError), path.open("r+b") as file:
                seen = try_lock(file) is False
        ranks.barrier()
    if held is None:
        return judge(
            "locks", "the file system has no locks", WARN, "seen by every node",
            "start only one command at a time in a directory, and no arrays of pipeline.prepare",
        )  # fmt: skip
    everywhere = ranks.broadcast(all(ranks.gather(seen)))
    return judge(
        "locks", "seen by every node" if everywhere else "seen by one node only",
        "" if everywhere else WARN, "seen by every node",
        "mount with flock (Lustre), or start one command at a time in a directory",
    )  # fmt: skip


def _check_alone(folder: Path) -> list[Check]:
    """Checks that one node can make: atomic renames, and the rate of small synced files."""
    try:
        check_renames(folder)
        renames = judge("renames", "atomic", "")
    except CheckpointError as error:
        renames = judge("renames", str(error), FAIL, "atomic", "name another --output")
    start = time.monotonic()
    count = 0
    while count < _SYNCS and time.monotonic() - start < 1.0:
        with (folder / "synced").open("wb") as file:
            file.write(b"x")
            os.fsync(file.fileno())
        count += 1
    rate = count / (time.monotonic() - start)
    return [
        renames,
        at_least(
            "synced files", rate, 0, _FEW_SYNCS, f"{rate:,.0f} per second", " per second",
            "expect checkpoints to take long; use a faster file system",
        ),
    ]  # fmt: skip


def _check_room(place: Path, needed: float, planned: float) -> list[Check]:
    status = os.statvfs(place)
    free = float(status.f_bavail * status.f_frsize)
    least = max(needed, LITTLE_ROOM)
    room = at_least(
        "room for the run", free / GB, least / GB, max(planned, least, SOME_ROOM) / GB,
        f"{free / GB:.3g} GB free in {place}", " GB",
        "free some space, or name an --output on another file system",
    )  # fmt: skip
    if not status.f_files:  # as on btrfs
        return [room, skip("inodes", "this file system has no fixed number")]
    return [
        room,
        at_least(
            "inodes", status.f_favail, _FEW_INODES, _SOME_INODES, f"{status.f_favail:,} free", "",
            "remove files, or name an --output on another file system",
        ),
    ]  # fmt: skip


def checkpoint_bytes(run: Run) -> float:
    """Bytes of one checkpoint at least: the matrices of the embeddings and of the layers."""
    encoder = run.encoder
    width = encoder.width
    layers = 1 if encoder.sharing == "all" else encoder.layers
    # query, key, value and output; both matrices of the feed-forward part
    layer = 4 * width**2 + 2 * width * encoder.feed_forward
    table = (run.data.vocab_size + encoder.positions) * (encoder.embedding_width or width)
    return float(_STATE_BYTES * (table + layers * layer))

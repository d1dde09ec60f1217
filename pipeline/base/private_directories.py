"""Directories that only this user can change: for compiled code, and for copies that are trusted.

Whoever can write to a cache of compiled code, or to a directory above it, runs code as the user who
loads it. Every level of the path is checked, with its links, and everything below it that others
can reach.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
import tempfile
from functools import cache
from pathlib import Path

from pipeline.base.errors import ConfigError

MOST_LINKS = 40
"""Links in a path before the kernel, too, gives up."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH


def own_directory(
    directory: Path, variable: str, content: str = "the compiled code that is run"
) -> Path:
    """`directory` without links, created with mode 700 if it does not exist.

    variable: the environment variable or option that names another directory, and content: what is
    read from there, for messages. Raises ConfigError if others can change the directory, and
    OSError if it cannot be created.
    """
    try:
        resolved = _make(directory)
        _check_content(resolved)
    except _Refused as refused:
        raise ConfigError(
            f"{refused}, so others could change {content} from {directory}; "
            f"remove it, or set {variable} to a directory that only you can write to"
        ) from None
    return resolved


def own_temporary_directory(name: str) -> Path:
    """`own_directory` for `name` among the temporary files, where the usual place is read-only."""
    return own_directory(Path(tempfile.gettempdir(), f"{name}-{os.geteuid()}"), "TMPDIR")


class _Refused(Exception):
    """A level that others can change; the message says which and why."""


def _make(directory: Path) -> Path:
    """The directory without links, all of its levels checked; levels that are missing are made."""
    waiting = list(reversed(directory.absolute().parts[1:]))
    level, links, among_others = Path("/"), 0, False
    status = os.lstat(level)
    while waiting:
        _check_owner(level, status, is_parent=not among_others)
        shared = _is_writable_by_others(level, status)
        if shared and not status.st_mode & stat.S_ISVTX:
            raise _Refused(f"{level} is writable by {_by_whom(status)}")
        name = waiting.pop()
        if name == "..":  # `level` has no links, so this is its parent
            level, among_others = level.parent, True
            status = os.lstat(level)
            continue
        entry = level / name
        try:
            status = os.lstat(entry)
        except FileNotFoundError:
            _make_one(entry)
            status = os.lstat(entry)
        if stat.S_ISLNK(status.st_mode):
            _check_owner(entry, status, is_parent=True)
            links += 1
            if shared:
                raise _Refused(f"{entry} is a link in a directory that others can write to")
            if links > MOST_LINKS:
                raise _Refused(f"{entry} is one of too many links")
            target = entry.readlink()
            waiting += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            if target.is_absolute():
                level, among_others = Path("/"), False
            status = os.lstat(level)
            continue
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(f"{entry} is not a directory")
        level, among_others = entry, shared
    _check_entry(level, status)
    return level


def _make_one(directory: Path) -> None:
    with contextlib.suppress(FileExistsError):  # by a faster process; it is checked like any other
        directory.mkdir(mode=0o700)


def _check_content(directory: Path) -> None:
    """Raise _Refused if something in `directory` is another's, or writable by others.

    Nobody else can enter a directory of mode 700, so there only its entries' owners matter, in case
    that others could write to it before; in one that others can enter, everything below it counts.
    """
    others_enter = bool(os.lstat(directory).st_mode & _OTHERS_ENTER)
    check = _check_entry if others_enter else _check_owner
    with os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # temporary files of other processes
                status = entry.stat(follow_symlinks=False)
                check(Path(entry.path), status)
                if others_enter and stat.S_ISDIR(status.st_mode):
                    _check_content(Path(entry.path))


def _check_entry(path: Path, status: os.stat_result) -> None:
    _check_owner(path, status)
    if not stat.S_ISLNK(status.st_mode) and _is_writable_by_others(path, status):
        raise _Refused(f"{path} is writable by {_by_whom(status)}")


def _check_owner(path: Path, status: os.stat_result, is_parent: bool = False) -> None:
    """Raise _Refused if `path` belongs to somebody else; is_parent: it may be root's in a container
    that does not know root, as it is above a cache, and not where others can write."""
    if status.st_uid in (0, os.geteuid()) or (is_parent and status.st_uid in _unknown_owners()):
        return
    raise _Refused(f"{path} belongs to {_user(status.st_uid)}")


def _is_writable_by_others(path: Path, status: os.stat_result) -> bool:
    """Whether group or others can write; with an access list, the group's bit is its maximum."""
    if status.st_mode & _OTHERS_WRITE == stat.S_IWGRP:
        return not _is_own_group(status.st_gid) or _has_access_list(path)
    return bool(status.st_mode & _OTHERS_WRITE)


@cache
def _is_own_group(group: int) -> bool:
    """Whether a group is this user's own, without other members."""
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:  # in containers, users without a name
        return False
    is_own = group == user.pw_gid and found.gr_name == user.pw_name
    return is_own and set(found.gr_mem) <= {user.pw_name}


def _has_access_list(path: Path) -> bool:
    try:
        return "system.posix_acl_access" in os.listxattr(path, follow_symlinks=False)
    except OSError:  # a file system without access lists
        return False


@cache
def _unknown_owners() -> frozenset[int]:
    """The user id that a container's user namespace shows for those it does not know, as root."""
    try:
        if str(0xFFFFFFFF) in Path("/proc/self/uid_map").read_text().split():
            return frozenset()  # every user is known here
        return frozenset((int(Path("/proc/sys/kernel/overflowuid").read_text()),))
    except (OSError, ValueError):
        return frozenset()


def _by_whom(status: os.stat_result) -> str:
    if status.st_mode & stat.S_IWOTH:
        return "everybody"
    try:
        return f"group {grp.getgrgid(status.st_gid).gr_name}"
    except KeyError:
        return f"group {status.st_gid}"


def _user(number: int) -> str:
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"

"""Directories that only this user can change: for compiled code, and for copies that are trusted.

Users who can write to a cache of compiled code, or to a directory above it, run code as the one who
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
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from pipeline.base.errors import ConfigError

_MOST_LINKS = 40
"""Links in links before the kernel, too, gives up."""


def own_directory(
    directory: Path, variable: str, content: str = "the compiled code that is run"
) -> Path:
    """`directory` without links, created with mode 700 if it does not exist.

    variable: the environment variable or option that names another directory, and content: what is
    read from there, for messages. Raises ConfigError if others can change the directory, and
    OSError if it cannot be created.
    """
    try:
        resolved = _resolve(directory.absolute())
        _check_tree(resolved)
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


def _resolve(path: Path, links: int = 0) -> Path:
    """An absolute path without links; directories that are missing are made.

    A level is looked up once those above it are checked, so that no other user can replace what
    was seen there. links: how many led to this path.
    """
    if path.name == "..":  # the parent of what the links lead to
        return _resolve(path.parent, links).parent
    parent = _resolve(path.parent, links) if path.name else path
    others_write = bool(path.name) and _others_can_write(parent, parent.lstat())
    level = parent / path.name
    if not os.path.lexists(level):
        with contextlib.suppress(FileExistsError):  # by a faster process; checked like any other
            level.mkdir(mode=0o700)
    status = level.lstat()  # once: others may replace their own entry of a sticky directory
    _check_owner(level, status, is_parent=not others_write)
    if stat.S_ISLNK(status.st_mode):
        if others_write:
            raise _Refused(f"{level} is a link in a directory that others can write to")
        if links == _MOST_LINKS:
            raise _Refused(f"{level} is one of too many links")
        return _resolve(parent / level.readlink(), links + 1)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(f"{level} is not a directory")
    # In a sticky directory, such as /tmp, others cannot replace entries that are not theirs.
    if not status.st_mode & stat.S_ISVTX:
        _check_mode(level, status)
    return level


def _check_tree(path: Path, is_reachable: bool = True) -> None:
    """Raise _Refused if `path` or something below it is another's, or writable by others.

    No other user can enter a directory of mode 700, so only its entries' owners matter, in case
    that others could write to it before; in one that others can enter, everything below it counts.
    """
    status = path.lstat()
    _check_owner(path, status)
    if not is_reachable or stat.S_ISLNK(status.st_mode):
        return
    _check_mode(path, status)
    if stat.S_ISDIR(status.st_mode):
        others_enter = bool(status.st_mode & (stat.S_IXGRP | stat.S_IXOTH))
        for entry in path.iterdir():
            with contextlib.suppress(FileNotFoundError):  # temporary files of other processes
                _check_tree(entry, is_reachable=others_enter)


def _check_owner(path: Path, status: os.stat_result, is_parent: bool = False) -> None:
    """Raise _Refused if `path` is another user's; is_parent: it may be root's in a container
    that does not know root, as it is above a cache, and not where others can write."""
    owner = status.st_uid
    if owner not in (0, os.geteuid()) and not (is_parent and owner == _unknown_owner()):
        raise _Refused(f"{path} belongs to user {_name_of(owner, pwd.getpwuid)}")


def _check_mode(path: Path, status: os.stat_result) -> None:
    if _others_can_write(path, status):
        group = f"group {_name_of(status.st_gid, grp.getgrgid)}"
        whom = "everybody" if status.st_mode & stat.S_IWOTH else group
        raise _Refused(f"{path} is writable by {whom}")


def _others_can_write(path: Path, status: os.stat_result) -> bool:
    """True if group or others can; with an access list, the group's bit is its maximum."""
    # Only the group's bit: then it matters who is in the group, or on a list.
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) != stat.S_IWGRP:
        return bool(status.st_mode & stat.S_IWOTH)
    try:
        has_list = "system.posix_acl_access" in os.listxattr(path, follow_symlinks=False)
    except OSError:  # a file system without access lists
        has_list = False
    return has_list or not _is_own_group(status.st_gid)


@cache
def _is_own_group(group: int) -> bool:
    """True if a group is this user's own, without other members."""
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:  # in containers, users without a name
        return False
    is_own = group == user.pw_gid and found.gr_name == user.pw_name
    return is_own and set(found.gr_mem) <= {user.pw_name}


@cache
def _unknown_owner() -> int | None:
    """The user id that a container's user namespace shows for those it does not know, as root."""
    try:
        if str(0xFFFFFFFF) in Path("/proc/self/uid_map").read_text().split():
            return None  # every user is known here
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return None


def _name_of(number: int, lookup: Callable[[int], Sequence[object]]) -> str:
    try:
        return str(lookup(number)[0])
    except KeyError:
        return str(number)

"""The cache of compiled kernels, and the line that announces their compilation.

numba recompiles a kernel if the kernel's file has changed, but not if the file of a function it
calls has: after an update it could run old code. Kernels are therefore cached under a hash of all
of `pipeline/`. `NUMBA_CACHE_DIR` replaces the directory, without a hash. Packages with kernels
import this module first.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
import sys
import tempfile
from functools import cache
from pathlib import Path

import numba
import xxhash
from numba.core import event

from pipeline.errors import ConfigError, run_command

MOST_LINKS = 40
"""Links in a path before the kernel, too, gives up."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH


def kernel_directory(code: Path) -> Path:
    """The cache directory for kernels compiled from the Python files below `code`."""
    digest = xxhash.xxh3_64()
    for path in sorted(code.rglob("*.py")):
        digest.update(path.relative_to(code).as_posix().encode())
        digest.update(path.read_bytes())
    return caches() / f"kernels-{digest.hexdigest()}"


def caches() -> Path:
    """Where our caches are: below `XDG_CACHE_HOME` or the home directory."""
    return _cache_home() / "tenfold"


def _cache_home() -> Path:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home directory
        return own_temporary_directory("tenfold")


def set_kernel_cache() -> None:
    """Let numba keep kernels in a directory that only this user can change.

    That is one among the temporary files if the usual one cannot be written. Raises ConfigError if
    others can change it.
    """
    given = str(numba.config.CACHE_DIR)  # type: ignore[attr-defined]
    wanted = Path(given) if given else kernel_directory(Path(__file__).parent)
    variable = "NUMBA_CACHE_DIR" if given else "XDG_CACHE_HOME"
    numba.config.CACHE_DIR = str(_writable(wanted, variable))  # type: ignore[attr-defined]


def set_torch_caches() -> None:
    """The same for Inductor, Triton and extensions; call it before a model is compiled.

    Inductor's own default is a directory in /tmp with a name that can be guessed. Extensions stay
    in torch's directory, which has a folder per version.
    """
    for variable, name in (("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton")):
        wanted = Path(os.environ.get(variable) or caches() / name)
        os.environ[variable] = str(_writable(wanted, variable))
    extensions = os.environ.get("TORCH_EXTENSIONS_DIR") or _cache_home() / "torch_extensions"
    with contextlib.suppress(OSError):  # cannot be made, and so holds nothing to run
        own_directory(Path(extensions), "TORCH_EXTENSIONS_DIR")


def _writable(wanted: Path, variable: str) -> Path:
    """`wanted`, made and checked; one among the temporary files if it cannot be written."""
    try:
        directory = own_directory(wanted, variable)
        if os.access(directory, os.W_OK):
            return directory
    except OSError:  # no home directory, or a read-only one
        pass
    try:
        return own_temporary_directory(f"tenfold-{wanted.name}")
    except OSError as error:
        raise ConfigError(
            f"compiled code can be kept neither in {wanted} nor among the temporary files "
            f"({error}); set {variable} to a directory that you can write to"
        ) from error


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


class FirstCompilation(event.Listener):
    """Announces the compilation of kernels once."""

    announced = False

    def announce(self) -> None:
        """Print the line unless it was printed before."""
        if not self.announced:
            print(
                "compiling kernels for this processor: about a minute, the first time only",
                file=sys.stderr,
                flush=True,
            )
        self.announced = True

    def on_start(self, event: event.Event) -> None:
        """Called when numba compiles a function, not when it loads a compiled one."""
        if sys.stderr.isatty():
            self.announce()

    def on_end(self, event: event.Event) -> None:
        """Required by numba; prints nothing."""


run_command(set_kernel_cache)  # numba reads the first kernel when its module is imported
FIRST_COMPILATION = FirstCompilation()
"""This process's announcement."""
event.register("numba:compile", FIRST_COMPILATION)  # type: ignore[no-untyped-call]

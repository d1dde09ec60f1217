"""Directories of compiled code are nobody else's, at any level."""

import os
import tempfile
from pathlib import Path

import numba
import pytest

from pipeline.base import private_directories
from pipeline.base.errors import ConfigError
from pipeline.base.private_directories import own_directory, own_temporary_directory
from pipeline.kernels.cache import set_kernel_cache, set_torch_caches
from tests.conftest import Command

SOMEBODY, GROUP = 4242, 4243
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def make(path: Path, mode: int = 0o700, owner: int = -1, group: int = -1) -> Path:
    """A directory, or a file if its name has a dot."""
    if path.suffix:
        path.touch()
    else:
        path.mkdir(parents=True, exist_ok=True)
    os.chown(path, owner, group)
    path.chmod(mode)
    return path


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_every_missing_level_is_made_for_this_user_alone(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        found = own_directory(tmp_path / "a" / "b" / "c", "X")
    finally:
        os.umask(before)
    assert found == tmp_path / "a" / "b" / "c" == own_directory(found, "X")
    assert [mode_of(level) for level in (found, *found.parents[:2])] == [0o700] * 3


def test_a_directory_of_an_older_version_is_still_used(tmp_path: Path) -> None:
    cache = make(tmp_path / "cache", 0o755)
    make(make(cache / "kernels", 0o755) / "file.nbc", 0o644)
    (cache / "latest").symlink_to("kernels")  # nobody else can replace it
    assert own_directory(cache, "X") == cache


CACHE, THEIRS = ("cache", 0o700), ("theirs", 0o755, SOMEBODY)
REFUSED = {
    "another": ([("cache", 0o700, SOMEBODY)], "cache belongs to user 4242"),
    "another above": ([CACHE, ("", 0o755, SOMEBODY)], "top belongs to user 4242"),
    "another inside": (
        [CACHE, ("cache/kernels", 0o755, SOMEBODY)], "cache/kernels belongs to user 4242",
    ),
    "file inside": (
        [CACHE, ("cache/kernel.nbc", 0o600, SOMEBODY)], "cache/kernel.nbc belongs to user 4242",
    ),
    "everybody": ([("cache", 0o777)], "cache is writable by everybody"),
    "everybody but sticky": ([("cache", 0o1777)], "cache is writable by everybody"),
    "everybody above": ([CACHE, ("", 0o777)], "top is writable by everybody"),
    "group writes": ([("cache", 0o2770, -1, GROUP)], "cache is writable by group 4243"),
    "group writes above": ([CACHE, ("", 0o775, -1, GROUP)], "top is writable by group 4243"),
    "everybody inside": (
        [("cache", 0o755), ("cache/kernels", 0o777)], "cache/kernels is writable by everybody",
    ),
    "everybody deep inside": (
        [("cache", 0o755), ("cache/a", 0o755), ("cache/a/b", 0o755), ("cache/a/b/k.nbc", 0o666)],
        "cache/a/b/k.nbc is writable by everybody",
    ),
    "link of another": ([("own", 0o700), "own"], "cache belongs to user 4242"),
    "link where others write": (
        [("own", 0o700), ("", 0o1777), "own"],
        "cache is a link in a directory that others can write to",
    ),
    "link to another": ([THEIRS, "theirs"], "theirs belongs to user 4242"),
    "link through another": ([THEIRS, ("own", 0o700), "theirs/../own"], "theirs belongs to user"),
    "link to itself": (["cache"], "cache is one of too many links"),
}  # fmt: skip
"""Directories to make under /top, or the target of a link /top/cache; and how the error starts."""


@as_root
@pytest.mark.parametrize("name", REFUSED)
def test_what_others_can_change_is_refused(name: str, tmp_path: Path) -> None:
    steps, words = REFUSED[name]
    top = make(tmp_path / "top")
    for step in steps:
        if isinstance(step, str):
            (top / "cache").symlink_to(step)
        else:
            make(top / step[0], *step[1:])
    if name == "link of another":
        os.chown(top / "cache", SOMEBODY, -1, follow_symlinks=False)
    match = rf"/{words}.*, so others could change .* set X to"
    with pytest.raises(ConfigError, match=match) as said:
        own_directory(top / "cache", "X")
    assert "\n" not in str(said.value)


@as_root
@pytest.mark.parametrize("below", ["cache", "cache/kernels"])
def test_below_tmp_only_ones_own_directory_counts(below: str, tmp_path: Path) -> None:
    top = make(tmp_path / "tmp", 0o1777)
    assert mode_of(own_directory(top / below, "X")) == 0o700
    make(top / "planted", 0o755, SOMEBODY)
    with pytest.raises(ConfigError, match="/planted belongs to user 4242"):
        own_directory(top / "planted" / "kernels", "X")


@as_root
def test_a_root_that_a_container_does_not_know_may_own_the_levels_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody can make a directory in /tmp: there, and of the cache itself, it is nobody's root."""
    monkeypatch.setattr(private_directories, "_unknown_owner", lambda: SOMEBODY)
    home = make(tmp_path / "home", 0o755, SOMEBODY)
    tmp = make(home / "tmp", 0o1777, SOMEBODY)
    assert own_directory(tmp / "cache", "X") == tmp / "cache"
    planted, theirs = (make(path, 0o755, SOMEBODY) for path in (tmp / "planted", home / "theirs"))
    for path in (planted / "kernels", theirs):
        with pytest.raises(ConfigError, match=r"/(planted|theirs) belongs to user 4242"):
            own_directory(path, "X")


def test_links_of_this_user_are_followed(tmp_path: Path) -> None:
    """A home, or a cache in it, is often a link to a larger disk."""
    disk = make(tmp_path / "disk")
    (tmp_path / "home").symlink_to("disk")
    (make(disk / "x") / "cache").symlink_to(tmp_path / "home" / "large")
    found = own_directory(tmp_path / "home" / "x" / "cache", "X")
    assert found == disk / "large" and mode_of(found) == 0o700


def test_ones_own_group_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As at sites with umask 002; an access list may give the same bit to others."""
    if os.geteuid():
        pytest.skip("the group of root is known to have no other members")
    directory = make(tmp_path / "cache", 0o775)
    assert own_directory(directory, "X") == directory
    monkeypatch.setattr(os, "listxattr", lambda path, **_: ["system.posix_acl_access"])
    with pytest.raises(ConfigError, match="/cache is writable by group root"):
        own_directory(directory, "X")


@as_root
def test_temporary_directories_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(make(tmp_path / "tmp", 0o1777)))
    found = own_temporary_directory("kernels")
    assert found == tmp_path / "tmp" / f"kernels-{os.geteuid()}" and mode_of(found) == 0o700
    os.chown(found, SOMEBODY, -1)
    with pytest.raises(ConfigError, match="belongs to user 4242"):
        own_temporary_directory("kernels")


def test_what_is_not_a_directory_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "cache"):
        with pytest.raises(NotADirectoryError):
            own_directory(path, "X")


@as_root
def test_caches_of_kernels_and_of_torch_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = str(make(tmp_path / "planted", 0o755, SOMEBODY) / "cache")
    monkeypatch.setattr(numba.config, "CACHE_DIR", planted)
    with pytest.raises(ConfigError, match="set NUMBA_CACHE_DIR to"):
        set_kernel_cache()
    variables = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR")
    for variable in variables:
        monkeypatch.setenv(variable, str(tmp_path / "mine"))
    for variable in variables:
        with monkeypatch.context() as patch:
            patch.setenv(variable, planted)
            with pytest.raises(ConfigError, match=f"set {variable} to"):
                set_torch_caches()


@as_root
@pytest.mark.parametrize(
    ("module", "variable"), [("prepare", "XDG_CACHE_HOME"), ("train", "TORCHINDUCTOR_CACHE_DIR")]
)
def test_commands_refuse_a_planted_directory_in_one_line(
    module: str, variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    planted = make(make(tmp_path / "tmp", 0o1777) / "tenfold-root", 0o755, SOMEBODY)
    arguments = {
        "prepare": ["--corpus", "sample", "--recipe", "roberta_tiny", "--output", tmp_path / "x"],
        "train": ["roberta_tiny", "--data", tmp_path, "--output", tmp_path / "run"],
    }[module]
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    result = command(module, *arguments, **{variable: str(planted / "cache")})
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert result.stderr.startswith(f"error: {planted} belongs to user 4242, so others could")
    assert f"set {variable} to a directory" in result.stderr and result.stderr.count("\n") == 1

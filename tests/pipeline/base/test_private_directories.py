"""Directories of compiled code are nobody else's, at any level."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.base import private_directories
from pipeline.base.errors import ConfigError
from pipeline.base.private_directories import own_directory, own_temporary_directory

CODE = Path(__file__).parents[3]
SOMEBODY, GROUP = 4242, 4243
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def make(path: Path, mode: int = 0o700, owner: int = -1, group: int = -1) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, owner, group)
    path.chmod(mode)
    return path


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_every_level_that_is_missing_is_made_for_this_user_alone(
    umask: int, tmp_path: Path
) -> None:
    before = os.umask(umask)
    try:
        found = own_directory(tmp_path / "a" / "b" / "c", "X")
    finally:
        os.umask(before)
    assert found == tmp_path / "a" / "b" / "c"
    for level in (found, found.parent, found.parent.parent):
        assert mode_of(level) == 0o700
    assert own_directory(found, "X") == found


def test_a_directory_of_an_older_version_is_still_used(tmp_path: Path) -> None:
    make(tmp_path / "cache", 0o755)
    make(tmp_path / "cache" / "kernels", 0o755)
    (tmp_path / "cache" / "kernels" / "file.nbc").touch(0o644)
    (tmp_path / "cache" / "latest").symlink_to("kernels")  # nobody else can replace it
    assert own_directory(tmp_path / "cache", "X") == tmp_path / "cache"


def another(top: Path) -> None:
    make(top / "cache", 0o700, SOMEBODY)


def another_above(top: Path) -> None:
    make(top / "cache").parent.chmod(0o755)
    os.chown(top, SOMEBODY, -1)


def another_inside(top: Path) -> None:
    make(top / "cache" / "kernels", 0o755, SOMEBODY)


def file_inside(top: Path) -> None:
    make(top / "cache")
    (top / "cache" / "kernel.nbc").touch()
    os.chown(top / "cache" / "kernel.nbc", SOMEBODY, -1)


def everybody(top: Path) -> None:
    make(top / "cache", 0o777)


def everybody_but_sticky(top: Path) -> None:
    make(top / "cache", 0o1777)


def everybody_above(top: Path) -> None:
    make(top / "cache").parent.chmod(0o777)


def group_writes(top: Path) -> None:
    make(top / "cache", 0o2770, group=GROUP)


def group_writes_above(top: Path) -> None:
    make(top / "cache")
    make(top, 0o775, group=GROUP)


def everybody_inside(top: Path) -> None:
    make(top / "cache" / "kernels", 0o777)
    (top / "cache").chmod(0o755)


def everybody_deep_inside(top: Path) -> None:
    make(top / "cache" / "a" / "b", 0o755)
    (top / "cache" / "a" / "b" / "kernel.nbc").touch()
    (top / "cache" / "a" / "b" / "kernel.nbc").chmod(0o666)
    (top / "cache" / "a").chmod(0o755)
    (top / "cache").chmod(0o755)


def link_of_another(top: Path) -> None:
    (top / "cache").symlink_to(make(top / "own"))
    os.chown(top / "cache", SOMEBODY, -1, follow_symlinks=False)


def link_where_others_write(top: Path) -> None:
    make(top / "own")
    (make(top, 0o1777) / "cache").symlink_to("own")


def link_to_another(top: Path) -> None:
    (top / "cache").symlink_to(make(top / "theirs", 0o755, SOMEBODY))


def link_through_another(top: Path) -> None:
    make(top / "theirs", 0o755, SOMEBODY)
    (top / "cache").symlink_to(Path("theirs", "..", "own"))
    make(top / "own")


def link_to_itself(top: Path) -> None:
    (top / "cache").symlink_to("cache")


@as_root
@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (another, r"/cache belongs to user 4242"),
        (another_above, r"/top belongs to user 4242"),
        (another_inside, r"/cache/kernels belongs to user 4242"),
        (file_inside, r"/cache/kernel.nbc belongs to user 4242"),
        (everybody, r"/cache is writable by everybody"),
        (everybody_but_sticky, r"/cache is writable by everybody"),
        (everybody_above, r"/top is writable by everybody"),
        (group_writes, r"/cache is writable by group 4243"),
        (group_writes_above, r"/top is writable by group 4243"),
        (everybody_inside, r"/cache/kernels is writable by everybody"),
        (everybody_deep_inside, r"/cache/a/b/kernel.nbc is writable by everybody"),
        (link_of_another, r"/cache belongs to user 4242"),
        (link_where_others_write, r"/cache is a link in a directory that others can write to"),
        (link_to_another, r"/theirs belongs to user 4242"),
        (link_through_another, r"/theirs belongs to user 4242"),
        (link_to_itself, r"/cache is one of too many links"),
    ],
)
def test_what_others_can_change_is_refused(
    plant: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    top = make(tmp_path / "top")
    plant(top)
    with pytest.raises(ConfigError, match=words + ".*, so others could change .* set X to") as said:
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
    tmp = make(make(tmp_path / "home", 0o755, SOMEBODY) / "tmp", 0o1777, SOMEBODY)
    assert own_directory(tmp / "cache", "X") == tmp / "cache"
    make(tmp / "planted", 0o755, SOMEBODY)
    make(tmp_path / "home" / "theirs", 0o755, SOMEBODY)
    for path in (tmp / "planted" / "kernels", tmp_path / "home" / "theirs"):
        with pytest.raises(ConfigError, match=r"/(planted|theirs) belongs to user 4242"):
            own_directory(path, "X")


def test_links_of_this_user_are_followed(tmp_path: Path) -> None:
    """A home, or a cache in it, is often a link to a larger disk."""
    make(tmp_path / "disk")
    (tmp_path / "home").symlink_to("disk")
    (make(tmp_path / "disk" / "x") / "cache").symlink_to(tmp_path / "home" / "large")
    found = own_directory(tmp_path / "home" / "x" / "cache", "X")
    assert found == tmp_path / "disk" / "large" and mode_of(found) == 0o700


def test_ones_own_group_without_members_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at sites with umask 002; an access list may give the same bit to others."""
    if os.geteuid():
        pytest.skip("the group of root is known to have no other members")
    directory = make(tmp_path / "cache", 0o775)
    assert own_directory(directory, "X") == directory
    monkeypatch.setattr(os, "listxattr", lambda path, **_: ["system.posix_acl_access"])
    with pytest.raises(ConfigError, match="/cache is writable by group root"):
        own_directory(directory, "X")


@as_root
def test_temporary_directories_are_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
@pytest.mark.parametrize(
    ("module", "variable"),
    [
        ("prepare", "XDG_CACHE_HOME"),
        ("inspect", "NUMBA_CACHE_DIR"),
        ("train", "NUMBA_CACHE_DIR"),
        ("train", "TORCHINDUCTOR_CACHE_DIR"),
        ("train", "TRITON_CACHE_DIR"),
        ("train", "TORCH_EXTENSIONS_DIR"),
    ],
)
def test_commands_refuse_a_planted_directory_in_one_line(
    module: str, variable: str, tmp_path: Path
) -> None:
    planted = make(make(tmp_path / "tmp", 0o1777) / "tenfold-root", 0o755, SOMEBODY)
    arguments = {
        "prepare": ["--corpus", "sample", "--recipe", "roberta_tiny", "--output", tmp_path / "x"],
        "inspect": [tmp_path],
        "train": ["roberta_tiny", "--data", tmp_path, "--output", tmp_path / "run"],
    }[module]
    environment = os.environ | {"PYTHONPATH": str(CODE)}
    if variable == "XDG_CACHE_HOME":
        environment.pop("NUMBA_CACHE_DIR", None)
    result = subprocess.run(
        [sys.executable, "-m", f"pipeline.{module}", *map(str, arguments)],
        env=environment | {variable: str(planted / "cache")},
        text=True, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {planted} belongs to user 4242, so others could")
    assert f"set {variable} to a directory" in result.stderr and result.stderr.count("\n") == 1

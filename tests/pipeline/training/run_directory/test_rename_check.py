import errno
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import CheckpointError
from pipeline.training.run_directory.rename_check import check_renames, copying_kind

MOUNTS = """\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
60 21 0:51 / /data rw,nosuid shared:30 - fuse.s3fs s3fs rw,user_id=0
61 21 0:52 / /mnt/my\\040bucket rw shared:31 - fuse mountpoint-s3 rw
62 60 0:53 / /data/scratch rw shared:32 - lustre 10.0.0.1@o2ib:/scratch rw
"""


def test_object_stores_are_known_by_their_mounts(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    for directory, kind in (
        ("/data/runs/a", "s3fs"), ("/mnt/my bucket/run", "mountpoint-s3"),
        ("/data/scratch/run", ""), ("/database/run", ""), ("/home/me", ""),
    ):  # fmt: skip
        assert copying_kind(Path(directory), mounts) == kind, directory
    assert copying_kind(tmp_path, tmp_path / "no such list") == ""


def test_they_are_refused_in_one_line(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"60 21 0:51 / {tmp_path} rw - fuse.goofys bucket rw\n")
    with pytest.raises(CheckpointError, match="is on goofys, which copies files"):
        check_renames(tmp_path, mounts)


def test_this_disk_passes_and_no_file_remains(tmp_path: Path) -> None:
    check_renames(tmp_path)
    assert not list(tmp_path.iterdir())


def refuse(*_: Path) -> None:
    raise OSError(errno.ENOSYS, "Function not implemented")


def copy(source: Path, target: Path) -> None:
    target.write_bytes(source.read_bytes())
    source.unlink()


@pytest.mark.parametrize(
    ("function", "by", "match"),
    [
        ("replace", refuse, r"\(Function not impl"), ("rename", refuse, r"\(Function not impl"),
        ("replace", copy, "changes when it is replaced"),
    ],
)  # fmt: skip
def test_renames_that_fail_or_copy_are_found(
    function: str, by: Any, match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, function, by)
    with pytest.raises(CheckpointError, match=match):
        check_renames(tmp_path)
    assert by is copy or not list(tmp_path.iterdir())

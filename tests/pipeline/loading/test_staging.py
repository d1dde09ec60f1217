"""Copies on the node's own disk are identical, complete, limited and never waited for."""

import ctypes
import fcntl
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from pipeline.base.errors import ConfigError
from pipeline.loading import record_batches
from pipeline.loading.dataset import Dataset
from pipeline.loading.staging import Staging
from tests.pipeline.preparing import wait_until

ROWS = np.array([0, 1499, 2823])


@contextmanager
def staged(
    shared: Path, root: Path, reserve: int = 0, first: int = 1
) -> Iterator[tuple[Dataset, Staging, list[str]]]:
    """A dataset whose copies this process makes, for this pass at first, and what is reported."""
    dataset, lines = Dataset.open(shared), list[str]()
    staging = Staging(shared, dataset.manifest, root, lines.append, reserve=reserve)
    dataset.stage(staging.part(dataset.shards))
    staging.copy_in_background()
    if first:
        follow(staging, first)
    try:
        yield dataset, staging, lines
    finally:
        staging.close()


def follow(staging: Staging, pass_number: int) -> None:
    """The loader reads this pass of the only dataset."""
    [part] = staging.parts.values()
    part.follow(pass_number)


def read(dataset: Dataset, duplicate: int) -> list[list[int]]:
    """The ids of `ROWS` and their numbers of predictions, from memory."""
    fields = dataset.records(ROWS, duplicate).fields
    ids = [
        (ctypes.c_uint16 * tokens).from_address(address)
        for address, tokens in zip(fields["ids"].tolist(), fields["tokens"].tolist())
    ]
    return [list(map(int, row)) for row in ids] + [fields["predictions"].tolist()]


def test_training_reads_the_copies_once_they_are_there(
    random_shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that were mapped before are mapped again from their copies; other masks come later."""
    monkeypatch.setattr(record_batches, "LOOK_SECONDS", 0.0)
    plain, folders = Dataset.open(random_shards), ("rows", "mask-0", "mask-1")
    with staged(random_shards, tmp_path, first=0) as (dataset, staging, lines):
        assert read(dataset, 0) == read(plain, 0)
        maps = Path("/proc/self/maps")
        assert str(staging.copies) not in maps.read_text()
        follow(staging, 1)
        wait_until(lambda: bool(lines))
        assert "has the rows and masks of this pass and the next" in lines[0]
        names = {path.relative_to(staging.copies).as_posix() for path in staging.copies.rglob("*")}
        shards = [f"{folder}/train-0000{k}.arrow" for k in range(3) for folder in folders]
        assert names == {*shards, *folders, ".lock"}
        for name in shards:
            assert (staging.copies / name).read_bytes() == (random_shards / name).read_bytes()
        assert read(dataset, 0) == read(plain, 0)
        assert maps.read_text().count(str(staging.copies / "rows")) == 2
        assert read(dataset, 7) == read(plain, 7)
        follow(staging, 2)
        wait_until(lambda: len(lines) > 1)
        assert not (staging.copies / "mask-0").exists()
        assert (staging.copies / "mask-2").exists()
        assert read(dataset, 0) == read(plain, 0)
        assert read(dataset, 2) == read(plain, 2)


def test_whole_record_batches_are_read_from_copies(random_shards: Path, tmp_path: Path) -> None:
    """Also after a copy has gone."""
    with staged(random_shards, tmp_path, first=10) as (dataset, staging, lines):
        wait_until(lambda: bool(lines))
        assert (staging.copies / "mask-9").exists() and (staging.copies / "mask-0").exists()
        sizes = ["tokens", "predictions"]
        expected = Dataset.open(random_shards).records(ROWS, 9).fields[sizes]
        with ThreadPoolExecutor(2) as pool:
            for _ in range(2):
                found = dataset.read_records(ROWS, 9, pool, keep=0).fields
                assert np.array_equal(found[sizes], expected)
                shutil.rmtree(staging.copies / "mask-9", ignore_errors=True)


def test_a_full_disk_is_reported_once_and_the_rest_is_read_where_it_is(
    random_shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    left = [1 << 20]

    def free(path: Path) -> object:
        left[0] -= 200_000
        return usage._replace(free=left[0])

    monkeypatch.setattr(shutil, "disk_usage", free)
    with staged(random_shards, tmp_path, reserve=500_000) as (dataset, staging, lines):
        wait_until(lambda: bool(lines))
        assert len(lines) == 1 and f"reading the rest from {random_shards}" in lines[0]
        # 849 and 649 kB are enough for files of up to 148 kB and the reserve, 449 kB are not
        assert len(list(staging.copies.rglob("*.arrow"))) == 2
        assert not list(staging.copies.glob("mask-1/*"))
        assert read(dataset, 0) == read(Dataset.open(random_shards), 0)


def test_a_directory_that_cannot_be_written_is_reported(
    random_shards: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with staged(random_shards, tmp_path / "file") as (dataset, _, lines):
        wait_until(lambda: bool(lines))
        assert f"reading {random_shards} instead" in lines[0]
        assert read(dataset, 0) == read(Dataset.open(random_shards), 0)


def test_a_damaged_original_is_not_copied(damaged: Path, tmp_path: Path) -> None:
    content = bytearray((damaged / "rows/train-00002.arrow").read_bytes())
    content[5000] ^= 1
    (damaged / "rows/train-00002.arrow").write_bytes(content)
    with staged(damaged, tmp_path / "to") as (_, staging, lines):
        wait_until(lambda: len(lines) == 2)
        assert "train-00002.arrow is damaged" in lines[0]
        copied = {path.name for path in (staging.copies / "rows").iterdir()}
        assert copied == {"train-00000.arrow", "train-00001.arrow"}


def test_a_restarted_run_keeps_what_is_there(random_shards: Path, tmp_path: Path) -> None:
    """And the copies of a finished run are removed."""
    times = []
    for _ in range(2):
        with staged(random_shards, tmp_path, first=0) as (_, staging, _):
            (staging.copies / "rows").mkdir(parents=True, exist_ok=True)
            follow(staging, 1)
            wait_until(lambda: (staging.copies / "mask-1/train-00002.arrow").exists())
        times.append({path: path.stat().st_mtime_ns for path in staging.copies.rglob("*.arrow")})
    assert times[0] == times[1] and len(times[0]) == 9
    with staged(random_shards, tmp_path) as (_, staging, _):
        wait_until(lambda: staging.is_copying)
        staging.close(remove=True)
    assert not staging.copies.exists()


def test_one_run_of_a_node_copies(random_shards: Path, tmp_path: Path) -> None:
    """A second one reads the copies of the first, and leaves them."""
    with staged(random_shards, tmp_path) as (_, first, _):
        wait_until(lambda: first.is_copying)
        with staged(random_shards, tmp_path) as (dataset, second, lines):
            wait_until(lambda: bool(lines))
            assert "another run copies" in lines[0]
            wait_until(lambda: (first.copies / "mask-1/train-00002.arrow").exists())
            assert read(dataset, 0) == read(Dataset.open(random_shards), 0)
            second.close(remove=True)
        assert (first.copies / "rows/train-00000.arrow").exists()
    with (first.copies / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not [thread for thread in threading.enumerate() if thread.name == "staging"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_copies_that_others_can_change_are_refused(random_shards: Path, tmp_path: Path) -> None:
    """The copies' name can be guessed, and only their sizes are compared when they are read."""
    with staged(random_shards, tmp_path, first=0) as (_, staging, _):
        copies = staging.copies
    assert copies.stat().st_mode & 0o777 == 0o700
    os.chown(copies, 4242, -1)
    with pytest.raises(ConfigError, match=r"belongs to user 4242.* change the shards .* --stage"):
        staged(random_shards, tmp_path).__enter__()


def test_the_corpora_of_a_directory_have_copies_of_their_own(
    prepared: Path, tmp_path: Path
) -> None:
    """They are at different passes, so each keeps the masks of its own. One thread and one lock
    serve all, and there is one line; those that a later phase does not read are removed."""
    lines: list[str] = []
    whole = Dataset.open(prepared)
    corpora = [*whole.by_corpus().values()]
    staging = Staging(prepared, whole.manifest, tmp_path, lines.append, reserve=0)
    parts = [staging.part(own.shards, own.part) for own in corpora]
    assert len({part.copies for part in parts}) == 5
    for number, (own, part) in enumerate(zip(corpora, parts, strict=True), start=1):
        own.stage(part)
        part.follow(number)
    staging.copy_in_background()
    wait_until(lambda: bool(lines))
    assert len([thread for thread in threading.enumerate() if thread.name == "staging"]) == 1
    for number, (own, part) in enumerate(zip(corpora, parts, strict=True)):
        found = {path.relative_to(part.copies) for path in part.copies.rglob("*.arrow")}
        files = [(shard.file, shard.masks[number].file) for shard in own.shards]
        assert {Path(file) for pair in files for file in pair} <= found
        assert not any(f"mask-{number + 2}" in path.parts for path in found)
    parts[0].follow(2)
    wait_until(lambda: not parts[0].missing(parts[0].files()))
    staging.keep({own.part for own in corpora[:2]})
    # os.walk skips folders that are removed meanwhile
    wait_until(lambda: not any(names for *_, names in os.walk(parts[4].copies)))
    again = staging.part(corpora[4].shards, corpora[4].part)
    again.follow(1)  # a phase that reads it once more
    wait_until(lambda: not again.missing(again.files()))
    assert [*parts[0].copies.rglob("*.arrow")] and not [*parts[3].copies.rglob("*.arrow")]
    assert len(lines) == 1 and "has the rows and masks of this pass and the next" in lines[0]
    staging.close(remove=True)
    assert not [*tmp_path.rglob("*.arrow")] and len([*tmp_path.iterdir()]) == 0

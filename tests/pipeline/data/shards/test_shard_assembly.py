"""Pieces become one shard, whatever happens meanwhile, and rows, masks and their order stay."""

import functools
import itertools
import shutil
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline import prepare
from pipeline.base.errors import DataError
from pipeline.data.shards import arrow_files, shard_assembly
from pipeline.data.shards.manifest import TRAIN, read_manifest
from pipeline.data.shards.shard_assembly import Assembler, Assembly
from pipeline.execution.workers import local_executor
from pipeline.loading.dataset import Dataset
from pipeline.loading.order import Order
from tests.pipeline.data.small_shards import batch_lengths, flip, train_tables
from tests.pipeline.loading.conftest import prepare_directory
from tests.pipeline.preparing import Prepare, contents, many_documents

COUNTS = (1500, 30, 1024)


def test_rows_masks_and_their_order_do_not_change(apart_and_together: tuple[Path, Path]) -> None:
    """Nor do their record batches, documents and held-out rows."""
    many, few = (read_manifest(directory) for directory in apart_and_together)
    assert 1 < len(few.of(TRAIN)) < 5 and len(many.of(TRAIN)) > 15
    assert few.fingerprint == many.fingerprint and few.totals == many.totals
    assert all(len(shard.pieces) > 1 for shard in few.of(TRAIN))
    assert b'"pieces"' not in many.to_json()
    for one, other in zip(*map(train_tables, apart_and_together), strict=True):
        assert one.equals(other) and batch_lengths(one) == batch_lengths(other)
    apart, together = map(contents, apart_and_together)
    same = [name for name in apart if "train-" not in name and name != "manifest.json"]
    assert [together[name] for name in same] == [apart[name] for name in same]
    for kind in ("global", "blocks"):
        first, second = (
            Order(kind=kind, seed=1, piece_rows=(Dataset.open(directory).piece_rows,), window=3)  # type: ignore[arg-type]
            for directory in apart_and_together
        )
        places = np.arange(0, 3 * first.total_rows, 7)
        one, other = first.locate(places), second.locate(places)
        assert np.array_equal(one.row, other.row)
        assert np.array_equal(one.pass_number, other.pass_number)


def pieces_in(work: Path, compression: arrow_files.Compression = "none") -> Assembly:
    """Pieces of random rows with two masks."""
    prepare_directory(work, COUNTS, duplicates=2, compression=compression)
    return Assembly(7, 100, tuple(map(asdict, read_manifest(work).shards)))


def folders(output: Path) -> Path:
    for name in ("rows", "mask-0", "mask-1"):
        (output / name).mkdir(parents=True)
    return output


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_shard_is_the_record_batches_of_its_pieces(
    compression: arrow_files.Compression, tmp_path: Path
) -> None:
    """A second run finds the marker, and refuses one of other pieces, which another version may
    have grouped otherwise; a single piece keeps its bytes."""
    planned = pieces_in(tmp_path / "work", compression)
    before = [
        [(tmp_path / "work" / file["file"]).read_bytes() for file in (piece, *piece["masks"])]
        for piece in planned.pieces
    ]
    assembler = Assembler(tmp_path / "work", folders(tmp_path / "out"), compression)
    (shard,) = assembler.run([planned], local_executor(1))
    assert shard.pieces == COUNTS and shard.sequences == sum(COUNTS)
    assert shard.tokens == sum(piece["tokens"] for piece in planned.pieces)
    for number, mask in enumerate(shard.masks):
        own = [piece["masks"][number]["predictions"] for piece in planned.pieces]
        assert mask.predictions == sum(own)
    assert shard.file == "rows/train-00007.arrow" and not [*(tmp_path / "work").rglob("*.arrow")]
    for number, file in enumerate(shard.files()):
        pieces = arrow_files.read_pieces(tmp_path / "out" / file.file, shard)
        for piece, own in zip(pieces, before, strict=True):
            expected = pa.ipc.open_file(own[number]).read_all()
            assert piece.equals(expected) and batch_lengths(piece) == batch_lengths(expected)
    written = contents(tmp_path / "out")
    assert assembler.run([planned], local_executor(1)) == [shard]
    other = replace(planned, pieces=planned.pieces[:1])
    with pytest.raises(DataError, match=f"{planned.marker} is of other pieces"):
        assembler.run([other], local_executor(1))
    alone = pieces_in(tmp_path / "again", compression)
    alone = replace(alone, pieces=alone.pieces[:1])
    assembler = Assembler(tmp_path / "again", folders(tmp_path / "single"), compression)
    (shard,) = assembler.run([alone], local_executor(1))
    assert shard.pieces == () and contents(tmp_path / "out") == written
    assert [(tmp_path / "single" / file.file).read_bytes() for file in shard.files()] == before[0]


def stop_at(step: int, patch: pytest.MonkeyPatch) -> None:
    """Interrupt at a step: before or after a file is written or removed."""
    steps = itertools.count(1)

    def count() -> None:
        if next(steps) == step:
            raise KeyboardInterrupt

    def counted(function: Any, *arguments: Any, **options: Any) -> Any:
        count()
        found = function(*arguments, **options)
        count()
        return found

    for owner, name in ((arrow_files, "write_tables"), (shard_assembly, "write_whole")):
        patch.setattr(owner, name, functools.partial(counted, getattr(owner, name)))
    unlink = Path.unlink
    patch.setattr(Path, "unlink", lambda path, **options: counted(unlink, path, **options))


def test_a_kill_at_any_moment_leaves_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = pieces_in(tmp_path / "work")
    shutil.copytree(tmp_path / "work", tmp_path / "whole")
    whole = Assembler(tmp_path / "whole", folders(tmp_path / "expected"), "none")
    (shard,) = whole.run([planned], local_executor(1))
    for step in range(1, 40):
        work, output = tmp_path / f"work-{step}", folders(tmp_path / f"out-{step}")
        shutil.copytree(tmp_path / "work", work)
        assembler = Assembler(work, output, "none")
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            stop_at(step, patch)
            assembler.run([planned], local_executor(1))
            break
        assert assembler.run([planned], local_executor(1)) == [shard]
        assert contents(output) == contents(tmp_path / "expected"), step
    assert step == 2 * (3 + 1 + 9) + 1


def test_pieces_that_another_process_has_taken(tmp_path: Path) -> None:
    """It has written its marker, or the piece is lost; a damaged one is no part of a shard."""
    planned = pieces_in(tmp_path / "work")
    assembler = Assembler(tmp_path / "work", folders(tmp_path / "out"), "none")
    path = tmp_path / "work" / "mask-1" / "train-00001.arrow"
    flip(path, -9)
    with pytest.raises(DataError, match=f"{path} is damaged: .* remove {tmp_path / 'out'}"):
        assembler.assemble(planned)
    path.unlink()
    with pytest.raises(DataError, match=f"{path} is missing; remove {tmp_path / 'out'}"):
        assembler.assemble(planned)
    (tmp_path / "work" / planned.marker).write_text("{}")
    assembler.assemble(planned)


@pytest.mark.usefixtures("quick_workers")
def test_two_workers_continue_a_killed_part_with_the_same_bytes(
    apart_and_together: tuple[Path, Path], make: Prepare, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(prepare, "SPLIT_BYTES", 1 << 13)
    monkeypatch.setattr(prepare, "SHARD_BYTES", 1 << 16)
    monkeypatch.setattr("pipeline.data.text.documents.BATCH_CHARACTERS", 1 << 11)
    out, write = tmp_path / "out", shard_assembly.write_whole
    given = ("--corpus", many_documents(tmp_path / "in.jsonl", 300))

    def killed(path: Path, content: bytes) -> None:
        write(path, content)
        if path.name == "shard-000001.json":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shard_assembly, "write_whole", killed)
        make(*given, "--part", "2/2", code=130)
    assert [*(out / ".work").glob("shard-*.json")] and not (out / "manifest.json").exists()
    make(*given, "--workers", 2)
    assert contents(out) == contents(apart_and_together[1])

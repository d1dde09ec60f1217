"""A second run against a first one drops what one run over both would drop."""

import shutil
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline.data.selection.kept_signatures import keep_signatures
from pipeline.data.selection.select import Selection, decide
from pipeline.data.selection.signature_store import (
    INDEX,
    EarlierShards,
    clear_signatures,
    read_store,
)
from pipeline.execution.workers import local_executor
from tests.benchmarks.planted import copy_of, document, jaccard
from tests.pipeline.data.selection.conftest import chosen
from tests.pipeline.preparing import contents, write_jsonl

ALONE = local_executor(1)


def keep(folder: Path, name: str, **options: object) -> EarlierShards:
    """The signatures of a file."""
    selection = chosen(folder, name, **options)  # type: ignore[arg-type]
    keep_signatures(selection, folder / "signatures" / name, ALONE)
    return EarlierShards(name, read_store(folder / "signatures" / name))


def decisions(selection: Selection) -> list[tuple[str | None, int]]:
    """Reason and cluster of each document."""
    decide(selection, ALONE)
    tables = [pq.read_table(task.decisions) for task in selection.decided_tasks()]
    return [(row["dropped"], row["cluster"]) for table in tables for row in table.to_pylist()]


def reasons(selection: Selection) -> list[str | None]:
    return [reason for reason, _ in decisions(selection)]


def write(folder: Path, **texts: list[list[str]]) -> None:
    """The words of the documents of each corpus."""
    for name, its in texts.items():
        (folder / name).mkdir()
        write_jsonl(folder / name / f"{name}.jsonl", [" ".join(words) for words in its])


def copies_below(folder: Path) -> None:
    """april: a, b, copy of a. may: near-copy of a, new, near-copy of new, exact copy of b."""
    rng = np.random.default_rng(0)
    a, b, new = (document(rng, 200) for _ in range(3))
    write(folder, april=[a, b, a], may=[copy_of(a, 0.9, rng), new, copy_of(new, 0.9, rng), b])


def test_what_is_in_earlier_shards_is_dropped(tmp_path: Path) -> None:
    """The mark names shards, wherever they are, and what was taken from them: its copy is new."""
    copies_below(tmp_path)
    april = keep(tmp_path, "april")
    alone, against = chosen(tmp_path, "may"), chosen(tmp_path, "may", earlier=(april,))
    assert decisions(alone) == [(None, 0), (None, 1), ("near-duplicate", 1), (None, 3)]
    of_april = "near-duplicate of one in shards april"
    assert decisions(against) == [
        (of_april, 0), (None, 3), ("near-duplicate", 3), (of_april, 1),
    ]  # fmt: skip
    moved = tmp_path / "elsewhere"
    shutil.copytree(april.store.directory, moved)
    there = EarlierShards("april", read_store(moved))
    assert chosen(tmp_path, "may", earlier=(there,)).mark == against.mark
    assert clear_signatures(moved, {("april", "april.jsonl@0")}, "new") == 1
    without = chosen(tmp_path, "may", earlier=(EarlierShards("april", read_store(moved)),))
    assert len({alone.mark, against.mark, without.mark}) == 3
    assert reasons(without) == [None, None, "near-duplicate", of_april]


def test_several_earlier_shards_and_chains(tmp_path: Path) -> None:
    """A document that is only like a new document which is dropped goes with it, as in one run."""
    rng = np.random.default_rng(1)
    a, b = document(rng, 1200), document(rng, 1200)
    like_a = copy_of(a, 0.82, rng)
    like_like_a = copy_of(like_a, 0.82, rng)
    assert jaccard(" ".join(a), " ".join(like_like_a)) < 0.74
    write(tmp_path, april=[a], may=[b], june=[like_like_a, b, like_a])
    april, may = keep(tmp_path, "april"), keep(tmp_path, "may")
    of_april, of_may = (f"near-duplicate of one in shards {name}" for name in ("april", "may"))
    both = decisions(chosen(tmp_path, "june", earlier=(april, may)))
    assert both == [(of_april, 0), (of_may, 1), (of_april, 0)]
    turned = decisions(chosen(tmp_path, "june", earlier=(may, april)))
    assert turned == [(of_april, 1), (of_may, 0), (of_april, 1)]
    assert reasons(chosen(tmp_path, "june", earlier=(may,))) == [None, of_may, "near-duplicate"]


@pytest.mark.usefixtures("quick_workers")
def test_only_what_is_kept_is_stored_by_any_workers_killed_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies_below(tmp_path)
    store = keep(tmp_path, "april", split_bytes=1500).store
    line = (tmp_path / "april" / "april.jsonl").read_text().index("\n") + 1
    assert store.ids({0, 1}) == {0: "april.jsonl@0", 1: f"april.jsonl@{line}"}
    assert store.documents == 2 and len(store.index.files) > 1
    files = contents(store.directory)
    assert files.keys() == {INDEX, *(file.file for file in store.index.files)}
    selection = chosen(tmp_path, "april", split_bytes=1500)
    for part in ((2, 2), (1, 2)):
        keep_signatures(selection, tmp_path / "two", local_executor(2), part)
    assert contents(tmp_path / "two") == files
    shutil.rmtree(store.directory)
    selection.surveys[0].target.unlink()  # by `tenfold clean`: it is made again

    die = Mock(side_effect=KeyboardInterrupt)
    for name in ("write_signatures", "complete_store"):
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(f"pipeline.data.selection.kept_signatures.{name}", die)
            keep_signatures(selection, store.directory, ALONE)
        assert not (store.directory / INDEX).exists()
    keep_signatures(selection, store.directory, ALONE)
    assert contents(store.directory) == files

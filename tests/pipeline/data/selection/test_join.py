"""The join in tasks: the clusters of all pairs, few opens, resumed by task, by any processes."""

import functools
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import DataError
from pipeline.data.selection import join as join_module
from pipeline.data.selection import survey
from pipeline.data.selection.clusters import NEAR
from pipeline.data.selection.join import Join
from pipeline.data.selection.minhash import signatures
from pipeline.execution.workers import AnyTask, Executor, Stage, local_executor
from tests.benchmarks.planted import copy_of, document
from tests.launching.process import ROOT
from tests.pipeline.data.selection.conftest import arrays
from tests.pipeline.data.selection.test_clusters import all_pairs

ALONE = (1, 1)
WORDS = range(32)


@functools.cache
def signed_texts(first: int = 0) -> tuple[np.ndarray, list[int]]:
    """300 of the signatures of our documentation's paragraphs and of documents with planted copies,
    and the root of each."""
    texts = [text for text in (ROOT / "README.md").read_text().split("\n\n") for _ in range(2)]
    rng = np.random.default_rng(0)
    while len(texts) < 330:
        words = document(rng, int(rng.integers(20, 90)))
        likes = [copy_of(words, level, rng) for level in rng.uniform(0.5, 1, rng.integers(0, 12))]
        texts += [" ".join(some) for some in [words, *likes]]
    order = rng.permutation(330)[first : first + 300]
    signed = signatures(*arrays(texts[at] for at in order))
    return signed, all_pairs(signed, NEAR)


def write_surveys(folder: Path, signed: np.ndarray, rows: int) -> list[Path]:
    folder.mkdir()
    paths = []
    for first in range(0, len(signed), rows):
        some = signed[first : first + rows]
        columns = {f"word-{word:02d}": some[:, word] for word in WORDS}
        paths.append(folder / f"{first:06d}.parquet")
        dropped = pa.nulls(len(some), pa.string())
        pq.write_table(pa.table({"dropped": dropped, **columns}), paths[-1])
    return paths


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Join, list[int]]:
    """A join with a task per word, and the roots that it has to find."""
    signed, roots = signed_texts()
    monkeypatch.setattr(join_module, "_TASK_WORDS", 300)
    paths = write_surveys(tmp_path / "surveys", signed, 40)
    (tmp_path / "joins").mkdir()
    return Join(paths, 300, NEAR, tmp_path / "joins", "content", tmp_path / "decisions"), roots


def found(planned: Join, executor: Executor | None = None, part: tuple[int, int] = ALONE) -> Any:
    path = planned.find_roots(executor or local_executor(1), part)
    return np.fromfile(path, np.uint32).tolist()


def test_roots_are_those_of_all_pairs(planned: tuple[Join, list[int]]) -> None:
    join, expected = planned
    assert found(join) == expected
    assert len({root for root, times in Counter(expected).items() if times > 1}) > 40
    assert [len(join.files(name)) for name in ("candidates", "pairs", "agreement")] == [32, 1, 32]
    join.remove()
    assert [*join.directory.iterdir()] == []
    with pytest.raises(DataError, match="4,294,967,296 documents in a group"):
        replace(join, documents=1 << 32).find_roots(local_executor(1), ALONE)


def test_few_documents_are_one_task(
    planned: tuple[Join, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of other text are not taken."""
    join, expected = planned
    monkeypatch.setattr(join_module, "_TASK_WORDS", 3000)
    assert [len(join.files(name)) for name in ("candidates", "agreement")] == [4, 4]
    assert found(join) == expected
    other, roots = signed_texts(first=30)
    paths = write_surveys(join.directory.parent / "others", other, 40)
    assert found(replace(join, surveys=paths, content="other")) == roots
    monkeypatch.undo()
    assert [len(join.files(name)) for name in ("candidates", "agreement")] == [1, 1]
    join.remove()
    assert found(join) == expected
    many = replace(join, documents=70_000_000)
    assert len(many.files("candidates")) == len(many.files("agreement")) == 32


def test_each_task_opens_each_survey_once(
    planned: tuple[Join, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many ranges of hashes, runs and documents there are."""
    join, expected = planned
    opened, is_over, real = list[str](), Event(), survey.pq.ParquetFile

    def listen(event: str, given: tuple[Any, ...]) -> None:
        if event == "open" and not is_over.is_set():
            opened.append(str(given[0]))

    def spied(path: Path, **options: Any) -> pq.ParquetFile:
        opened.append(str(path))  # Arrow tells no hook
        return real(path, **options)

    sys.addaudithook(listen)
    monkeypatch.setattr(survey.pq, "ParquetFile", spied)
    roots = found(join)
    is_over.set()  # a hook stays for ever
    assert roots == expected
    surveys = [name for name in opened if name.endswith(".parquet")]
    assert len(surveys) == 2 * 32 * len(join.surveys)
    others = [name for name in opened if str(join.directory) in name]
    assert len(others) < 66 * 8  # its lock, its file twice, the directory, and what it reads


def test_a_killed_join_continues_with_the_tasks_that_are_left(
    planned: tuple[Join, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    join, expected = planned
    steps, done = dict(join_module._STEPS), list[str]()

    def counted(name: str, most: int, join: Join, words: range, path: Path) -> None:
        if len(done) == most:
            path.write_bytes(b"half")
            raise KeyboardInterrupt
        steps[name](join, words, path)
        done.append(f"{name} {words[0]}")

    for most, stopped_in in ((20, "candidates"), (45, "agreement"), (66, "")):
        for name in steps:
            monkeypatch.setitem(join_module._STEPS, name, partial(counted, name, most))
        if stopped_in:
            with pytest.raises(KeyboardInterrupt):
                found(join)
            assert len(done) == most and done[-1].startswith(stopped_in)
    assert found(join) == expected
    assert len(done) == len(set(done)) == 66


@pytest.mark.usefixtures("quick_workers")
def test_parts_of_an_array_do_their_shares_first(planned: tuple[Join, list[int]]) -> None:
    join, expected = planned
    asked: list[str] = []

    def recorded(stage: Stage[AnyTask], tasks: Iterable[AnyTask]) -> Iterator[tuple[AnyTask, Any]]:
        for task, result in local_executor(1).runner(stage, tasks):
            asked.append(task.name.partition("-content-")[2])
            yield task, result

    assert found(join, Executor(recorded), (2, 2)) == expected
    candidates = [name for name in asked if name.startswith("candidates")]
    assert candidates == [
        f"candidates-{n:02d}" for n in [*range(1, 32, 2), *range(16, 32, 2), *range(0, 16, 2)]
    ]
    assert len(asked) == 66
    join.remove()
    stage = Stage(
        join.directory, partial(join_module._start, join, join_module._STEPS["candidates"])
    )
    local_executor(2).run(stage, join._tasks("candidates"))  # by spawned processes
    written = {path: path.stat().st_mtime_ns for path in join.files("candidates")}
    assert found(join) == expected
    assert {path: path.stat().st_mtime_ns for path in written} == written


def test_a_join_that_another_process_ended_has_nothing_to_do(
    planned: tuple[Join, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where locks exclude nobody: the other one published the decisions and removed all files."""
    join, _ = planned
    real = join_module._STEPS["pairs"]

    def late(join: Join, words: range, path: Path) -> None:
        join.remove()
        real(join, words, path)

    def ended(join: Join, words: range, path: Path) -> None:
        join.decisions.mkdir()
        late(join, words, path)

    monkeypatch.setitem(join_module._STEPS, "pairs", late)
    with pytest.raises(DataError, match="-pairs-00: No such file or directory"):
        join.find_roots(local_executor(1), ALONE)  # gone for another reason
    monkeypatch.setitem(join_module._STEPS, "pairs", ended)
    assert not join.find_roots(local_executor(1), ALONE).exists()

"""Tasks of an extraction: their names, weights and markers, and when processes share one."""

from dataclasses import replace
from pathlib import Path

from pipeline.ingest.extraction.tasks import ExtractionTask, HelpTask, IdentificationTask, UnitTask
from pipeline.ingest.extraction.units import Unit
from pipeline.remote.kept_lists import PublishedFile
from tests.pipeline.ingest.dump import small_dump
from tests.pipeline.ingest.files import sniffed


def task_of(folder: Path) -> ExtractionTask:
    return ExtractionTask(sniffed(folder / "small.xml", small_dump()), "abc", folder / "out")


def test_names_and_weights(tmp_path: Path) -> None:
    file = task_of(tmp_path)
    unit = Unit(file.source, 100, 300, 0)
    tasks = [file, IdentificationTask(file), UnitTask(file, unit), HelpTask(file, unit)]
    part = ".small.xml-abc.100-300.parquet"
    assert [task.marker for task in tasks] == ["small.xml-abc.parquet", "", part, part]
    assert all("small.xml" in task.name for task in tasks)
    assert len({task.name for task in tasks}) == 4
    assert [task.weight for task in tasks] == [file.source.size, file.source.size, 200, 0]


def test_a_file_is_shared_while_it_is_here_and_not_extracted(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    assert task.is_here and task.can_share
    task.directory.mkdir()
    task.target.touch()
    assert task.is_here and not task.can_share
    published = PublishedFile(
        url="http://127.0.0.1/small.xml", path="small.xml", size=9, hash="", version="",
        connections=1, downloads=tmp_path / "absent", is_kept=False,
    )  # fmt: skip
    absent = replace(task.source, published=published, path=str(tmp_path / "absent"))
    task = replace(task, source=absent, mark="def")
    assert not task.is_here and not task.can_share

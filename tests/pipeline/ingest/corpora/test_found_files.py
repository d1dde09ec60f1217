"""Files in few bytes: in the order in which they were found, or by name."""

import random

import pytest

from pipeline.ingest.corpora import found_files
from pipeline.ingest.corpora.found_files import FoundFiles, InputFile


def file(name: str, **changes: object) -> InputFile:
    values: dict[str, object] = {
        "path": f"/in/{name}", "name": name, "folder": "/in", "is_given": False,
        "is_linked": False, "place": hash(name) % (1 << 90), "state": (3, 1 << 60),
    }  # fmt: skip
    return InputFile(**values | changes)  # type: ignore[arg-type]


FILES = [file("b"), file("c", place=None, state=None), file("a/x", is_linked=True), file("b/x")]


def test_files_are_kept_in_order_and_given_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    found = FoundFiles.of(FILES)
    assert [*found] == FILES
    assert len(found.runs) == 2
    assert [*found.by_name()] == sorted(FILES, key=lambda file: file.name)
    assert [*found] == []
    files = [file(f"{number:03d}") for number in range(30)]
    random.Random(0).shuffle(files)
    for block_rows in (0, 2, 100):
        monkeypatch.setattr(found_files, "BLOCK_ROWS", block_rows)
        found = FoundFiles()
        for start in range(0, 30, 3):
            found.join(FoundFiles.of(files[start : start + 3]))
        assert [*found] == files
        assert [*found.by_name()] == sorted(files, key=lambda file: file.name)
    # what is known of all
    found = FoundFiles.of(FILES)
    assert found.have_different_names() and found.are_different()
    assert found.is_printable and not found.has_dataset
    found.add(file("b", place=FILES[3].place))
    assert not found.have_different_names() and not found.are_different()
    assert not FoundFiles.of([file("a\n")]).is_printable
    assert FoundFiles.of([file("dataset_info.json")]).has_dataset
    assert not FoundFiles.of([file("dataset_info.json", is_given=True)]).has_dataset
    assert FoundFiles().are_different()

"""Versions are found without imports and compared over ranks."""

from importlib.metadata import version
from pathlib import Path

import pytest

from pipeline.diagnosis.checks import FAIL, OK, WARN
from pipeline.diagnosis.versions import compare_versions, find_versions


def test_versions_are_those_of_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = find_versions()
    assert before["numpy"] == version("numpy") and len(before["code"]) == 16
    metadata = tmp_path / "numpy-0.1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0.1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    after = find_versions()
    assert after["numpy"] == "0.1" and after["packages"] != before["packages"]


def test_the_ranks_that_differ_are_named() -> None:
    usual = {"python": "3.11", "torch": "2.13", "tqdm": "4", "packages": "a"}
    assert compare_versions([usual, usual]).status == OK
    old = compare_versions([usual, usual, usual | {"torch": "2.4", "packages": "b"}])
    assert old.status == FAIL and old.value == "torch is 2.4 on rank 2, 2.13 on the others"
    other = compare_versions([usual, usual, usual | {"packages": "b"}])
    assert other.status == WARN and "packages is b on rank 2" in other.value

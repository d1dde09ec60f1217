"""inspect says in a line what a run, a checkpoint, a model or a folder of results is."""

import json
from pathlib import Path

import pytest

from pipeline.data.inspection.path_kinds import kind_of
from tests.pipeline.ingest.files import put
from tests.pipeline.preparing import Call

FILES = {
    "run.json": ("{}", "a run; "),
    "state.json": ('{"step": 3, "run": {}}', "a checkpoint of a run; "),
    "config.json": ('{"model_type": "bert"}', "a model for transformers; "),
    "finetune.json": ("{", "a fine-tuning, "),
}


@pytest.mark.parametrize("name", FILES)
def test_what_a_folder_is(name: str, show: Call, tmp_path: Path) -> None:
    text, kind = FILES[name]
    put(tmp_path / "it" / name, text)
    said = show(tmp_path / "it")
    assert said.startswith(f"{tmp_path / 'it'}: {kind}") and said.count("\n") == 1


def test_folders_of_results(prepared: Path, show: Call, tmp_path: Path) -> None:
    (tmp_path / "shards" / "half" / ".work").mkdir(parents=True)
    (tmp_path / "shards" / "whole").symlink_to(prepared)
    said = show(tmp_path / "shards")
    assert f"a folder of 2 results; give one, e.g. {tmp_path}/shards/half\n" in said
    assert "has not finished there" in show(tmp_path / "shards" / "half", code=2)


def test_folders_of_other_programs(tmp_path: Path) -> None:
    """`save_to_disk` of datasets writes a state.json too."""
    put(tmp_path / "train" / "state.json", '{"_data_files": []}')
    put(tmp_path / "site" / "config.json", json.dumps({"title": "x"}))
    assert kind_of(tmp_path / "train") == kind_of(tmp_path / "site") == kind_of(tmp_path) == ""


def test_nothing_there(show: Call, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path, said in (
        (tmp_path / "none", "no such directory"),
        (tmp_path / "empty", "is an empty"),
    ):
        error = show(path, code=2)
        assert said in error and error.count("\n") == 1

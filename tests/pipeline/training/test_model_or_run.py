import shutil
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.training import model_or_run
from pipeline.training.model_or_run import find_vocabulary, load_model
from pipeline.training.weights.model_folders import load_run

GOLDEN = Path(__file__).parents[2] / "golden"


def test_messages_on_checkpoints_are_not_part_of_the_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, _ = load_run(GOLDEN / "runs/bert")
    monkeypatch.setattr(model_or_run, "load_run", lambda _: (saved, ["step 20 is damaged"]))
    load_model(GOLDEN / "runs/bert")
    assert capsys.readouterr() == ("", "checkpoints: step 20 is damaged\n")


def test_a_tokenizer_is_that_of_the_folder_or_of_the_shards(tmp_path: Path) -> None:
    run, folder = GOLDEN / "runs/bert", GOLDEN / "exports/bert"
    given = load_model(folder)
    vocabulary = find_vocabulary(folder, [], given.model)
    assert vocabulary.sha256 == given.tokenizer_sha256
    with pytest.raises(DataError, match=r"is no longer at .*; export the run"):
        find_vocabulary(run, [], given.model)
    shutil.copytree(folder, tmp_path / "tokenizer")
    assert find_vocabulary(run, [tmp_path], given.model).sha256 == vocabulary.sha256

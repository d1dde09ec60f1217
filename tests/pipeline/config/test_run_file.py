"""The file of `--run`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError
from pipeline.config.settings import override, to_dict
from pipeline.recipes import recipe
from pipeline.released.choice import read_run


def test_a_run_json_and_bare_settings_are_read(tmp_path: Path) -> None:
    run = override(recipe("roberta_tiny"), ["data.seed=7"])
    file = tmp_path / "run.json"
    for content in (to_dict(run), {"run": to_dict(run), "versions": {}}):
        file.write_text(json.dumps(content))
        assert read_run(file) == run


@pytest.mark.parametrize(
    ("content", "reason"),
    [("[1]", "cannot be read: it holds a list"), ("{", "cannot be read"), (None, "cannot be read")],
)
def test_another_file_is_refused(tmp_path: Path, content: str | None, reason: str) -> None:
    file = tmp_path / "run.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=f"--run .*run.json {reason}"):
        read_run(file)


def test_a_file_names_every_setting(tmp_path: Path) -> None:
    content = to_dict(recipe("roberta_base"))
    del content["encoder"]["attention_dropout"]
    file = tmp_path / "run.json"
    file.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=r"missing settings: encoder\.attention_dropout"):
        read_run(file)

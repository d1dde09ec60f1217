"""Names of models, and which files of one are read: no code, no pickles."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import ConfigError
from pipeline.released.hub import HubModel, fetch_model
from pipeline.remote.hub import MARKER
from tests.pipeline.remote.small_hub import (
    CONFIG,
    NAME,
    ORIGIN,
    READ,
    REVISION,
    content,
    downloads,
    leave_home,
    server_of,
    write_model,
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    write_model(folder)
    return folder


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "root" / "models"


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_home(tmp_path, monkeypatch)


@pytest.fixture
def serving(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return server_of(repository, "models", monkeypatch)


def test_what_is_read_is_fetched_and_code_and_pickles_never(serving: Any, models: Path) -> None:
    with serving() as asked:
        model = fetch_model(NAME, models)
    assert model == HubModel(models / "someone--news" / REVISION, ORIGIN)
    assert content(model.folder) == READ
    assert len(downloads(asked)) == len(READ) and not [line for line in asked if ".py" in line]
    assert fetch_model(ORIGIN.removeprefix("hf:"), models) == model


def test_names_in_a_list_leave_no_folder(serving: Any, models: Path, tmp_path: Path) -> None:
    def hostile(entries: list[dict[str, object]]) -> list[dict[str, object]]:
        names = ("../config.json", "generator/../../vocab.txt", "/vocab.txt", "LICENSE/../../x")
        return entries + [entries[0] | {"rfilename": name} for name in names]

    with serving(listed=hostile) as asked:
        assert content(fetch_model(NAME, models).folder) == READ
    assert not [line for line in asked if ".." in line or "%2" in line]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


@pytest.mark.parametrize(
    "name",
    [
        "roberta-base", "a/b/c", "a/b@", "../b", "a/..", "a/b@../c", "a--b/c", "a/b c", "", "/a/b",
        "a/b@c@d", ".a/b", "a/b@" + "é", "a/b\n",
    ],
)  # fmt: skip
def test_other_names_are_refused_without_a_request(name: str, models: Path) -> None:
    with pytest.raises(ConfigError, match=r"does not name a model on the Hub; write hf:ORG/NAME"):
        fetch_model(name, models)
    assert not models.exists()


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "no config.json, so it is not a model"),
        ({"config.json": b"{}"}, r"no model.safetensors; for many .*@refs/pr/NUMBER"),
        (
            {"config.json": b"{}", "pytorch_model.bin": b"\x80\x02."},
            r"no model.safetensors but pytorch_model.bin, a pickle, .*never read; for many models "
            r"the Hub has a conversion .*hf:someone/news@refs/pr/NUMBER",
        ),
        (
            {"config.json": b"{}", "model.safetensors.index.json": b"{}"},
            r"several files \(model.safetensors.index.json\).*max_shard_size",
        ),
    ],
)
def test_weights_that_are_not_read_are_named(
    files: dict[str, bytes], why: str, repository: Path, serving: Any, models: Path
) -> None:
    shutil.rmtree(repository)
    repository.mkdir()
    for name, text in files.items():
        (repository / name).write_bytes(text)
    with serving() as asked, pytest.raises(ConfigError, match=why):
        fetch_model(NAME, models)
    assert not downloads(asked) and not models.exists()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"auto_map": {"AutoModel": "modeling_bert.Mine"}},
            r"is a model with code of its own \(auto_map in config.json\), which never runs here; ",
        ),
        ({"model_type": "gpt2"}, "holds no model that can be continued: model_type=gpt2 is not"),
    ],
)
def test_a_model_that_is_not_trained_is_refused_before_its_weights(
    changes: dict[str, Any], why: str, repository: Path, serving: Any, models: Path
) -> None:
    (repository / "config.json").write_text(json.dumps(CONFIG | changes))
    for _ in range(2):
        with serving() as asked, pytest.raises(ConfigError, match=f"^hf:{NAME} {why}") as raised:
            fetch_model(NAME, models)
        assert downloads(asked) == ["config.json"] and "\n" not in str(raised.value)
    assert not [*models.rglob("model.safetensors")] and not [*models.rglob(MARKER)]

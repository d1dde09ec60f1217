"""Models of the Hub with the real huggingface_hub: once, whole, pinned, and no code or pickles."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from pipeline.base import files as files_module
from pipeline.base.errors import ConfigError, DataError, PipelineError, one_line
from pipeline.released import hub_models as hub_module
from pipeline.released.hub_models import HubModel, fetch_model
from pipeline.remote.hub import MARKER
from tests.pipeline.remote.small_hub import NAME, REVISION, leave_home, server_of

ORIGIN = f"hf:{NAME}@{REVISION}"
OTHER = "f" * 40
CONFIG = {
    "model_type": "bert", "vocab_size": 300, "num_hidden_layers": 2, "hidden_size": 16,
    "num_attention_heads": 2, "intermediate_size": 32, "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1, "type_vocab_size": 2, "initializer_range": 0.02,
    "max_position_embeddings": 32, "hidden_act": "gelu",
}  # fmt: skip
READ = {
    "config.json": json.dumps(CONFIG).encode(),
    "model.safetensors": bytes(range(256)) * 20,
    "generator/model.safetensors": bytes(5000),
    "span_boundary.safetensors": bytes(3000),
    "vocab.txt": b"[PAD]\n[UNK]\n",
    "README.md": b"---\nlicense: mit\n---\n",
    "LICENSE.txt": b"MIT\n",
}
NOT_READ = {
    "modeling_bert.py": b"raise SystemExit\n",
    "pytorch_model.bin": b"\x80\x02." * 900,
    "onnx/model.onnx": b"onnx",
    "generator/custom.py": b"raise SystemExit\n",
    "sub/config.json": b"{}",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A model as on the Hub, with code and pickles beside what is read."""
    folder = tmp_path / "repository"
    for name, content in (READ | NOT_READ).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "root" / "models"


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_home(tmp_path, monkeypatch)


@pytest.fixture
def serving(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Serves the repository while a block runs; yields the requests."""
    return server_of(repository, "models", monkeypatch)


def content(folder: Path) -> dict[str, bytes]:
    """All files of a folder but the marker."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != MARKER
    }


def downloads(asked: list[str]) -> list[str]:
    return [
        line.rpartition("/")[2] for line in asked if line.startswith("GET") and "resolve" in line
    ]


def test_what_is_read_is_fetched_once_and_code_and_pickles_never(
    serving: Any, models: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving() as asked:
        model = fetch_model(NAME, models)
    assert model == HubModel(models / "someone--news" / REVISION, ORIGIN)
    assert content(model.folder) == READ
    assert len(downloads(asked)) == len(READ) and not [line for line in asked if ".py" in line]
    assert json.loads((model.folder / MARKER).read_bytes())["origin"] == ORIGIN
    assert sorted(path.name for path in model.folder.parent.iterdir()) == [".lock", REVISION]
    assert capfd.readouterr().err == f"hf:{NAME} is commit {REVISION}; {ORIGIN} stays at it\n"
    # Nothing listens now: neither the name nor the commit sends a request.
    assert fetch_model(NAME, models) == fetch_model(ORIGIN.removeprefix("hf:"), models) == model
    assert capfd.readouterr().err == (
        f"hf:{NAME} is commit {REVISION}, fetched before; hf:{NAME}@main fetches the newest one, "
        f"hf:{NAME}@COMMIT any other\n"
    )


@pytest.mark.parametrize("revision", [REVISION, "main", "v1.0", "refs/pr/1"])
def test_revisions_are_resolved_to_a_commit(
    revision: str, serving: Any, models: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving():
        assert fetch_model(f"{NAME}@{revision}", models).origin == ORIGIN
    line = f"hf:{NAME}@{revision} is commit {REVISION}; {ORIGIN} stays at it\n"
    assert capfd.readouterr().err == (line if revision != REVISION else "")


def test_a_name_alone_stays_at_the_commit_that_was_fetched_first(
    serving: Any, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a newer one has been fetched since, for another run."""
    with serving():
        first = fetch_model(NAME, models)
    other = first.folder.with_name("0" * 40)
    shutil.copytree(first.folder, other)
    about = {"origin": "other", "fetched_at": "2999-01-01T00:00:00+00:00"}
    (other / MARKER).write_text(json.dumps(about))
    assert fetch_model(NAME, models) == first
    monkeypatch.setenv("RANK", "1")
    assert fetch_model(f"{NAME}@{'0' * 40}", models).folder == other


def test_one_rank_says_the_line(
    serving: Any, models: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "1")
    with serving():
        fetch_model(NAME, models)
    assert not capfd.readouterr().err


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
        ({"model_type": "gpt2"}, "has no model that can be continued: model_type=gpt2 is not"),
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


@pytest.mark.parametrize(
    ("name", "refused", "why"),
    [
        (NAME, (403, "GatedRepo"), r"is gated: .*ask at http://[\d.:]+/someone/news, then set HF_"),
        (
            NAME,
            (401, "RepoNotFound"),
            r"has no model someone/news \(401\), or it is private; .*HF_",
        ),
        (NAME, (404, "RepoNotFound"), r"has no model someone/news \(404\)"),
        (NAME, (403, "Other"), r"the Hub refuses hf:someone/news \(403\); set HF_TOKEN"),
        (f"{NAME}@none", None, "has no revision none; .*commits lists them"),
        (f"{NAME}@{OTHER}", None, f"has no revision {OTHER}"),
    ],
)
def test_refusals_of_the_hub(
    name: str, refused: Any, why: str, serving: Any, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with serving(refused=refused), pytest.raises(ConfigError, match=why) as raised:
        fetch_model(name, models)
    assert "hf_secret" not in str(raised.value) and len(one_line(str(raised.value))) < 300


def test_without_a_network(serving: Any, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        DataError, match=r"cannot be fetched \(.*\); run the same command again to continue, he"
    ):
        fetch_model(NAME, models)
    with serving() as asked, monkeypatch.context() as m:
        m.setattr(constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(DataError, match=r"cannot be fetched \(.*offline mode is enabled"):
            fetch_model(NAME, models)
    assert not asked
    with serving():
        fetch_model(NAME, models)
    with pytest.raises(DataError, match=rf"hf:{NAME} without a revision is {REVISION}, which is h"):
        fetch_model(f"{NAME}@main", models)
    with serving(refused=(500, "")), pytest.raises(DataError, match=r"cannot be fetched \(.*500"):
        fetch_model(f"{NAME}@main", models)


def test_a_missing_package_is_named(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[hub\]', or give the path of a folder"):
        fetch_model(NAME, models)


def resumed(serving: Any, models: Path) -> list[str]:
    """What is asked for after a failure, by a fetch that gives the whole model."""
    assert not [*models.rglob(MARKER)]
    with serving() as asked:
        assert content(fetch_model(NAME, models).folder) == READ
    assert sorted(path.name for path in (models / "someone--news").iterdir()) == [".lock", REVISION]
    return downloads(asked)


@pytest.mark.parametrize("how", ["short", "changed"])
@pytest.mark.parametrize("name", ["model.safetensors", "vocab.txt"])
def test_damaged_files_are_not_published(how: str, name: str, serving: Any, models: Path) -> None:
    """By a cache between the Hub and us, for example; the rest is kept for the next fetch."""

    def damage(found: str, whole: bytes) -> bytes:
        if found != name:
            return whole
        return whole[:-1] if how == "short" else bytes([whole[0] ^ 1]) + whole[1:]

    with serving(sent=damage), pytest.raises(DataError, match=name) as raised:
        fetch_model(NAME, models)
    assert "run the same command again" in str(raised.value)
    assert name in resumed(serving, models)


def test_a_list_that_lies_about_a_size_publishes_nothing(serving: Any, models: Path) -> None:
    def longer(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [entry | {"size": entry["size"] + 1} for entry in entries]

    def unstated(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"rfilename": entry["rfilename"]} for entry in entries]

    with serving(listed=longer), pytest.raises(DataError, match=r"differs from what the Hub lists"):
        fetch_model(NAME, models)
    with serving(listed=unstated), pytest.raises(DataError, match=r"states no length or hash of"):
        fetch_model(NAME, models)
    resumed(serving, models)


def test_a_killed_fetch_continues_with_the_files_that_lack(
    serving: Any, models: Path, tmp_path: Path
) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from pipeline.released.hub_models import fetch_model\n"
        f"fetch_model('{NAME}', Path(sys.argv[1]))"
    )
    started: list[subprocess.Popen[bytes]] = []
    is_started = threading.Event()

    def kill(name: str, whole: bytes) -> bytes:
        if name == "model.safetensors":
            is_started.wait()
            started[0].kill()
        return whole

    with serving(sent=kill):
        environment = os.environ | {"HF_HOME": str(tmp_path / "home")}
        command = [sys.executable, "-c", code, str(models)]
        started.append(subprocess.Popen(command, env=environment))
        is_started.set()
        assert started[0].wait(timeout=120) == -9
    assert resumed(serving, models) == ["model.safetensors"]


def test_a_full_disk(serving: Any, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(), monkeypatch.context() as m:
        usage = shutil.disk_usage("/")._replace(free=10)
        m.setattr(shutil, "disk_usage", lambda _: usage)
        with pytest.raises(DataError, match=r"takes 0 MB, and .*someone--news has 0 MB left; free"):
            fetch_model(NAME, models)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with serving(), monkeypatch.context() as m:
        m.setattr("huggingface_hub.HfApi.hf_hub_download", full)
        with pytest.raises(DataError, match=r"cannot write .*someone--news: No space .*free some"):
            fetch_model(NAME, models)
    resumed(serving, models)


@pytest.mark.parametrize("locks", ["locks", "no locks", "locks that exclude nobody"])
def test_two_at_once_have_one_folder(
    locks: str, serving: Any, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2, timeout=60)
    if locks != "locks":

        def flock(*_: object) -> None:
            if locks == "no locks":
                raise OSError(errno.ENOSYS, "Function not implemented")

        monkeypatch.setattr(files_module.fcntl, "flock", flock)
        publish = hub_module.publish_folder

        def together(written: Path, path: Path) -> None:
            both.wait()
            publish(written, path)

        monkeypatch.setattr(hub_module, "publish_folder", together)
    with serving() as asked, ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: fetch_model(NAME, models), range(2))
    assert first == second and content(first.folder) == READ
    assert len(downloads(asked)) == len(READ) or locks != "locks"
    left = {path.name for path in first.folder.parent.iterdir()}
    assert left == {".lock", REVISION}


def test_a_file_in_the_folders_place_is_named(serving: Any, models: Path) -> None:
    folder = models / "someone--news" / REVISION
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    with serving(), pytest.raises(PipelineError, match="is not a fetched model; remove it"):
        fetch_model(NAME, models)
    assert (folder / "notes.txt").read_text() == "mine"


def test_progress_counts_bytes(serving: Any, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    @contextmanager
    def counting(doing: str, unit: str, total: int) -> Iterator[Callable[[int], None]]:
        assert (doing, unit, total) == (
            f"fetching hf:{NAME}",
            "bytes",
            sum(map(len, READ.values())),
        )
        yield counted.append

    monkeypatch.setattr(hub_module, "counting", counting)
    with serving():
        fetch_model(NAME, models)
    assert sum(counted) >= sum(map(len, READ.values()))

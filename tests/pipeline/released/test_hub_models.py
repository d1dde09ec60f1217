"""Models of the Hub with the real huggingface_hub: once, whole, pinned, and no code or pickles."""

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from huggingface_hub import constants

from pipeline.base.errors import ConfigError, DataError, PipelineError, one_line
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


class Hub:
    """A Hub of one model, and a folder `models` for what is fetched from it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        leave_home(root, monkeypatch)
        self.repository, self.models = root / "repository", root / "root" / "models"
        self.serving = server_of(self.repository, "models", monkeypatch)
        self.asked: list[str] = []

    def fill(self, files: dict[str, bytes]) -> None:
        shutil.rmtree(self.repository, ignore_errors=True)
        self.repository.mkdir()
        for name, text in files.items():
            (self.repository / name).parent.mkdir(parents=True, exist_ok=True)
            (self.repository / name).write_bytes(text)

    def fetch(self, name: str = NAME, **answers: Any) -> HubModel:
        with self.serving(**answers) as self.asked:
            return fetch_model(name, self.models)

    def refuses(self, why: str, name: str = NAME, kind: Any = DataError, **answers: Any) -> str:
        with pytest.raises(kind, match=why) as raised:
            self.fetch(name, **answers)
        return str(raised.value)

    def downloads(self) -> list[str]:
        """What the last fetch asked for."""
        asked = [line for line in self.asked if line.startswith("GET") and "resolve" in line]
        return [line.rpartition("/")[2] for line in asked]

    def resumes(self) -> list[str]:
        """What is asked for after a failure, by a fetch that gives the whole model."""
        assert not [*self.models.rglob(MARKER)]
        assert content(self.fetch().folder) == READ
        assert names(self.models / "someone--news") == {".lock", REVISION}
        return self.downloads()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """Of a model with code and pickles beside what is read."""
    found = Hub(tmp_path, monkeypatch)
    found.fill(READ | NOT_READ)
    return found


def content(folder: Path) -> dict[str, bytes]:
    """All files of a folder but the marker."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != MARKER]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_what_is_read_is_fetched_once_and_code_and_pickles_never(
    hub: Hub, capfd: pytest.CaptureFixture[str]
) -> None:
    model = hub.fetch()
    assert model == HubModel(hub.models / "someone--news" / REVISION, ORIGIN)
    assert content(model.folder) == READ
    assert len(hub.downloads()) == len(READ) and not [line for line in hub.asked if ".py" in line]
    assert json.loads((model.folder / MARKER).read_bytes())["origin"] == ORIGIN
    assert names(model.folder.parent) == {".lock", REVISION}
    assert ORIGIN in capfd.readouterr().err
    # Nothing listens now: neither the name nor the commit sends a request.
    for name in (NAME, ORIGIN.removeprefix("hf:")):
        assert fetch_model(name, hub.models) == model
    errors = capfd.readouterr().err
    assert errors.count("\n") == 1 and errors.startswith(f"hf:{NAME} is commit {REVISION}, ")


def test_revisions_are_resolved_to_a_commit(hub: Hub, capfd: pytest.CaptureFixture[str]) -> None:
    for revision in ("main", "v1.0", "refs/pr/1", REVISION):
        assert hub.fetch(f"{NAME}@{revision}").origin == ORIGIN
        assert ("stays at it" in capfd.readouterr().err) == (revision != REVISION)
        shutil.rmtree(hub.models)


def test_a_name_alone_stays_at_the_commit_that_was_fetched_first(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also if a newer one has been fetched since, for another run; one rank says the line."""
    monkeypatch.setenv("RANK", "1")
    first = hub.fetch()
    assert not capfd.readouterr().err
    other = first.folder.with_name("0" * 40)
    shutil.copytree(first.folder, other)
    about = {"origin": "other", "fetched_at": "2999-01-01T00:00:00+00:00"}
    (other / MARKER).write_text(json.dumps(about))
    assert fetch_model(NAME, hub.models) == first
    assert fetch_model(f"{NAME}@{'0' * 40}", hub.models).folder == other


def test_names_in_a_list_leave_no_folder(hub: Hub, tmp_path: Path) -> None:
    def hostile(entries: list[dict[str, object]]) -> list[dict[str, object]]:
        outer = ("../config.json", "generator/../../vocab.txt", "/vocab.txt", "LICENSE/../../x")
        return entries + [entries[0] | {"rfilename": name} for name in outer]

    assert content(hub.fetch(listed=hostile).folder) == READ
    assert not [line for line in hub.asked if ".." in line or "%2" in line]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


def test_other_names_are_refused_without_a_request(hub: Hub) -> None:
    for name in (
        "roberta-base", "a/b/c", "a/b@", "../b", "a/..", "a/b@../c", "a--b/c", "a/b c", "", "/a/b",
        "a/b@c@d", ".a/b", "a/b@" + "é", "a/b\n",
    ):  # fmt: skip
        with pytest.raises(ConfigError, match="does not name a model on the Hub"):
            fetch_model(name, hub.models)
    assert not hub.models.exists()


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ([], "no config.json,"),
        (["config.json"], r"no model.safetensors; .*@refs/pr/NUMBER"),
        (
            ["config.json", "pytorch_model.bin"],
            f"but pytorch_model.bin, .*hf:{NAME}@refs/pr/NUMBER",
        ),
        (["config.json", "model.safetensors.index.json"], "model.safetensors.index.json"),
    ],
)
def test_weights_that_are_not_read_are_named(files: list[str], why: str, hub: Hub) -> None:
    hub.fill(dict.fromkeys(files, b"{}"))
    hub.refuses(why, kind=ConfigError)
    assert not hub.downloads() and not hub.models.exists()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"auto_map": {"AutoModel": "modeling_bert.Mine"}}, ".*auto_map"),
        ({"model_type": "gpt2"}, ".*model_type=gpt2 "),
    ],
)
def test_a_model_that_is_not_trained_is_refused_before_its_weights(
    changes: dict[str, Any], why: str, hub: Hub
) -> None:
    (hub.repository / "config.json").write_text(json.dumps(CONFIG | changes))
    for asked in (["config.json"], []):  # it is there the second time
        assert "\n" not in hub.refuses(f"^hf:{NAME} {why}", kind=ConfigError)
        assert hub.downloads() == asked
    assert not [*hub.models.rglob("model.safetensors")] and not [*hub.models.rglob(MARKER)]


@pytest.mark.parametrize(
    ("name", "refused", "why"),
    [
        (NAME, (403, "GatedRepo"), "is gated: .*HF_TOKEN"),
        (NAME, (401, "RepoNotFound"), "hf:someone/news is not on the Hub, .*HF_TOKEN"),
        (NAME, (404, "RepoNotFound"), "hf:someone/news is not on the Hub, "),
        (NAME, (403, "Other"), "hf:someone/news is refused: .*HF_TOKEN"),
        (f"{NAME}@none", None, "has no revision none"),
        (f"{NAME}@{OTHER}", None, f"has no revision {OTHER}"),
    ],
)
def test_refusals_of_the_hub(
    name: str, refused: Any, why: str, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    said = hub.refuses(why, name, ConfigError, refused=refused)
    assert "hf_secret" not in said and len(one_line(said)) < 300


def test_without_a_network_or_the_package(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"cannot be fetched \("):
        fetch_model(NAME, hub.models)
    with monkeypatch.context() as m:
        m.setattr(constants, "HF_HUB_OFFLINE", True)
        hub.refuses(r"cannot be fetched \(.*offline")
    assert not hub.asked
    hub.fetch()
    with pytest.raises(DataError, match=rf"hf:{NAME} .* {REVISION}"):
        fetch_model(f"{NAME}@main", hub.models)
    hub.refuses(r"cannot be fetched \(.*500", f"{NAME}@main", refused=(500, ""))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[hub\]'"):
        fetch_model(f"{NAME}@main", hub.models)


@pytest.mark.parametrize("how", ["short", "changed"])
@pytest.mark.parametrize("name", ["model.safetensors", "vocab.txt"])
def test_damaged_files_are_not_published(how: str, name: str, hub: Hub) -> None:
    """By a cache between the Hub and us, for example; the rest is kept for the next fetch."""

    def damage(found: str, whole: bytes) -> bytes:
        if found != name:
            return whole
        return whole[:-1] if how == "short" else bytes([whole[0] ^ 1]) + whole[1:]

    assert "run the same command again" in hub.refuses(name, sent=damage)
    assert name in hub.resumes()


def test_a_list_that_lies_about_a_size_publishes_nothing(hub: Hub) -> None:
    for why, changed in (
        ("differs from what the Hub lists", lambda entry: entry | {"size": entry["size"] + 1}),
        ("states no length or hash of", lambda entry: {"rfilename": entry["rfilename"]}),
    ):
        hub.refuses(why, listed=lambda entries, changed=changed: [*map(changed, entries)])
    hub.resumes()


def test_a_killed_fetch_continues_with_the_files_that_lack(hub: Hub, tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from pipeline.released.hub_models import fetch_model; "
        f"fetch_model({NAME!r}, Path({str(hub.models)!r}))"
    )
    started: list[subprocess.Popen[bytes]] = []
    is_started = threading.Event()

    def kill(name: str, whole: bytes) -> bytes:
        if name == "model.safetensors":
            is_started.wait()
            started[0].kill()
        return whole

    with hub.serving(sent=kill):
        environment = os.environ | {"HF_HOME": str(tmp_path / "home")}
        started.append(subprocess.Popen([sys.executable, "-c", code], env=environment))
        is_started.set()
        assert started[0].wait(timeout=120) == -9
    assert "config.json" not in (resumed := hub.resumes()) and "model.safetensors" in resumed


def test_a_full_disk(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as m:
        usage = shutil.disk_usage("/")._replace(free=10)
        m.setattr(shutil, "disk_usage", lambda _: usage)
        hub.refuses(r"someone--news has 0 MB left")
    full = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    with monkeypatch.context() as m:
        m.setattr("huggingface_hub.HfApi.snapshot_download", full)
        hub.refuses(r"someone--news: No space")
    hub.resumes()


def test_two_at_once_fetch_it_once(hub: Hub) -> None:
    with hub.serving() as hub.asked, ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: fetch_model(NAME, hub.models), range(2))
    assert first == second and content(first.folder) == READ
    assert len(hub.downloads()) == len(READ)
    assert names(first.folder.parent) == {".lock", REVISION}


def test_in_a_job_of_slurm_nothing_is_fetched_unless_asked(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is there is used."""
    with monkeypatch.context() as job:
        job.delenv("TENFOLD_FETCH", raising=False)
        job.setenv("SLURM_JOB_ID", "7")
        hub.refuses(rf"run python -m pipeline.tenfold settings hf:{NAME} on a", kind=ConfigError)
        assert not hub.asked
    hub.fetch()
    monkeypatch.delenv("TENFOLD_FETCH", raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert hub.fetch().origin == ORIGIN and not hub.asked


def test_a_file_in_the_folders_place_is_named(hub: Hub) -> None:
    folder = hub.models / "someone--news" / REVISION
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    hub.refuses("is not a fetched model", kind=PipelineError)
    assert (folder / "notes.txt").read_text() == "mine"

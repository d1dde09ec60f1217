"""Files of the Hub with the real huggingface_hub: once, whole, pinned, compared with its list."""

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
from pipeline.remote import hub
from pipeline.remote.hub import (
    MARKER,
    Repository,
    download,
    fetch_folder,
    list_files,
    matching,
)
from tests.pipeline.remote.small_hub import (
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

OTHER = "f" * 40


def fetch_model(name: str, models: Path) -> Path:
    """The folder of `NAME` or `NAME@REVISION` with the files of READ."""
    bare, _, revision = name.partition("@")
    repository = Repository(
        kind="model", name=bare, revision=revision, shown=f"hf:{name}", instead="or give a folder"
    )
    place = models / bare.replace("/", "--")

    def known(paths: list[str]) -> list[str]:
        return [path for path in paths if path in READ]

    return place / fetch_folder(repository, place, known, "config.json", lambda folder: None)


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


def test_what_is_read_is_fetched_once_and_code_and_pickles_never(
    serving: Any, models: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving() as asked:
        model = fetch_model(NAME, models)
    assert model == models / "someone--news" / REVISION
    assert content(model) == READ
    assert len(downloads(asked)) == len(READ) and not [line for line in asked if ".py" in line]
    assert json.loads((model / MARKER).read_bytes())["origin"] == ORIGIN
    assert sorted(path.name for path in model.parent.iterdir()) == [".lock", REVISION]
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
        assert fetch_model(f"{NAME}@{revision}", models).name == REVISION
    line = f"hf:{NAME}@{revision} is commit {REVISION}; {ORIGIN} stays at it\n"
    assert capfd.readouterr().err == (line if revision != REVISION else "")


def test_a_name_alone_stays_at_the_commit_that_was_fetched_first(
    serving: Any, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a newer one has been fetched since, for another run."""
    with serving():
        first = fetch_model(NAME, models)
    other = first.with_name("0" * 40)
    shutil.copytree(first, other)
    about = {"origin": "other", "fetched_at": "2999-01-01T00:00:00+00:00"}
    (other / MARKER).write_text(json.dumps(about))
    assert fetch_model(NAME, models) == first
    monkeypatch.setenv("RANK", "1")
    assert fetch_model(f"{NAME}@{'0' * 40}", models) == other


def test_one_rank_says_the_line(
    serving: Any, models: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "1")
    with serving():
        fetch_model(NAME, models)
    assert not capfd.readouterr().err


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
    with pytest.raises(ConfigError, match=r"pip install '\.\[hub\]', or give a folder"):
        fetch_model(NAME, models)


def resumed(serving: Any, models: Path) -> list[str]:
    """What is asked for after a failure, by a fetch that gives the whole model."""
    assert not [*models.rglob(MARKER)]
    with serving() as asked:
        assert content(fetch_model(NAME, models)) == READ
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
        "from tests.pipeline.remote.test_hub import fetch_model\n"
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
        publish = hub.publish_folder

        def together(written: Path, path: Path) -> None:
            both.wait()
            publish(written, path)

        monkeypatch.setattr(hub, "publish_folder", together)
    with serving() as asked, ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: fetch_model(NAME, models), range(2))
    assert first == second and content(first) == READ
    assert len(downloads(asked)) == len(READ) or locks != "locks"
    left = {path.name for path in first.parent.iterdir()}
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

    monkeypatch.setattr(hub, "counting", counting)
    with serving():
        fetch_model(NAME, models)
    assert sum(counted) >= sum(map(len, READ.values()))


def test_globs_match_no_slash() -> None:
    paths = ["b/2.parquet", "b/10.parquet", "b/c/3.parquet", "4.parquet", "b/5.json"]
    assert matching("b/*.parquet")(paths) == ["b/10.parquet", "b/2.parquet"]
    assert matching("*.parquet")(paths) == ["4.parquet"]
    with pytest.raises(DataError, match=r"the Hub has no d/\*.parquet"):
        matching("d/*.parquet")(paths)


def test_files_of_a_dataset(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    news = Repository(kind="dataset", name=NAME, revision="main", shown="news", instead="or not")
    with server_of(repository, "datasets", monkeypatch)():
        commit, files = list_files(news, matching("*.txt"))
        assert commit == REVISION and [file.path for file in files] == ["LICENSE.txt", "vocab.txt"]
        path = download(news, commit, files[1], tmp_path / "parts")
        assert path.read_bytes() == READ["vocab.txt"]
        assert news.page.endswith(f"/datasets/{NAME}")

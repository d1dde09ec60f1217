"""Files of a commit of the Hub with the real huggingface_hub."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import ConfigError, DataError, PipelineError
from pipeline.base.files import bytes_in
from pipeline.remote.hub import Repository, download, list_files
from tests.pipeline.remote.small_hub import NAME, REVISION, leave_home, server_of

NEWS = Repository(kind="dataset", name=NAME, revision="main", shown="news", instead="or not")


@pytest.fixture
def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Serves a repository while a block runs; yields the requests."""
    leave_home(tmp_path, monkeypatch)
    folder = tmp_path / "repository"
    (folder / "sub").mkdir(parents=True)
    for name in ("b.txt", "a.txt", "c.py", "sub/a.txt"):
        (folder / name).write_bytes(name.encode() * 1000)
    return server_of(folder, "datasets", monkeypatch)


def test_chosen_files_of_a_commit(serving: Any, tmp_path: Path) -> None:
    """Only these are fetched, and what is there stays."""
    with serving() as asked:
        commit, files = list_files(NEWS, "*.txt")
        assert commit == REVISION and [file.path for file in files] == ["a.txt", "b.txt"]
        assert len(asked) == 1
        assert [file.path for file in list_files(NEWS, "sub/*")[1]] == ["sub/a.txt"]
        with pytest.raises(DataError, match=r"the Hub has no \*\.md"):
            list_files(NEWS, "*.md")
        for chosen in (files[1:], files):
            download(NEWS, commit, chosen, tmp_path / "parts")
        assert len([line for line in asked if "GET" in line and "resolve" in line]) == 2
    path = tmp_path / "parts" / "b.txt"
    assert path.read_bytes() == b"b.txt" * 1000 and files[1].is_at(path)
    path.write_bytes(b"b.tx." * 1000)
    assert not files[1].is_at(path)


def test_an_encoded_answer_is_bounded_by_the_list(serving: Any, tmp_path: Path) -> None:
    """huggingface_hub unpacks it while it is written."""
    bomb = gzip.compress(bytes(200 << 20))
    with serving(encoded=bomb), pytest.raises(DataError, match="more than twice the 5,000 bytes"):
        commit, files = list_files(NEWS, "a.txt")
        download(NEWS, commit, files, tmp_path / "parts")
    assert bytes_in(tmp_path / "parts") < 30 << 20, "a block or two of huggingface_hub"


def test_in_a_job_of_slurm_nothing_is_fetched_unless_asked(
    serving: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TENFOLD_FETCH", raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with serving() as asked:
        with pytest.raises(ConfigError, match=r"^news is not in TENFOLD_ROOT.*--fetch"):
            list_files(NEWS, "*.txt")
        assert not asked
        monkeypatch.setenv("TENFOLD_FETCH", "1")
        assert list_files(NEWS, "*.txt")[0] == REVISION


def test_a_token_is_not_shown(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    for status in (401, 403, 404, 500):
        with serving(refused=(status, "")), pytest.raises(PipelineError) as caught:
            list_files(NEWS, "*.txt")
        assert "hf_secret" not in str(caught.value)

"""Files of datasets with the real huggingface_hub, compared with the Hub's list.

`released/test_hub` has its refusals, damage and full disks.
"""

import importlib
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, get_session

from pipeline.base.errors import DataError
from pipeline.base.files import bytes_in
from pipeline.remote.hub import Repository, download, list_matching
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
    with serving() as asked:
        commit, files = list_matching(NEWS, "*.txt")
        assert commit == REVISION and [file.path for file in files] == ["a.txt", "b.txt"]
        assert len(asked) == 1 and NEWS.page.endswith(f"/datasets/{NAME}")
        assert [file.path for file in list_matching(NEWS, "sub/*")[1]] == ["sub/a.txt"]
        with pytest.raises(DataError, match=r"the Hub has no \*\.md"):
            list_matching(NEWS, "*.md")
        path = download(NEWS, commit, files[1], tmp_path / "parts")
    assert path.read_bytes() == b"b.txt" * 1000 and files[1].is_at(path)
    assert bytes_in(tmp_path / "parts") >= 5000
    path.write_bytes(b"b.tx." * 1000)
    assert not files[1].is_at(path)


def test_a_network_is_awaited(
    serving: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = HfApi.hf_hub_download
    client = importlib.import_module(type(get_session()).__module__.partition(".")[0])
    failures = [ConnectionError("gone"), client.ConnectError("gone"), ConnectionError("gone")]

    def lose(*given: Any, **more: Any) -> Any:
        if failures:
            raise failures.pop()
        return fetch(*given, **more)

    monkeypatch.setattr(HfApi, "hf_hub_download", lose)
    with serving():
        commit, files = list_matching(NEWS, "a.txt")
        assert download(NEWS, commit, files[0], tmp_path / "parts").is_file()

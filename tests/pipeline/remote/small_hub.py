"""A Hugging Face Hub of one dataset or model, with the part of the interface that we use."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

from tests.pipeline.remote.publishers import Answering, served

REVISION = "0123456789abcdef0123456789abcdef01234567"
NAME = "someone/news"

LARGE_BYTES = 1000
"""A model's files of this length are listed as large ones are, with a SHA-256."""


@contextmanager
def small_hub(
    folder: Path,
    kind: str = "datasets",
    *,
    refused: tuple[int, str] | None = None,
    listed: Callable[[list[dict[str, object]]], object] = list,
    sent: Callable[[str, bytes], bytes] = lambda name, content: content,
    encoded: bytes = b"",
) -> Iterator[tuple[str, list[str]]]:
    """Serves `folder` as NAME at REVISION; yields the address and the requests.

    kind: datasets or models. refused: the status and the Hub's error code of every answer. listed:
    changes the list of a model's files. sent: changes what is sent of a file. encoded: sent in
    place of every file, in gzip.
    """
    asked: list[str] = []
    revisions = (REVISION, "main", "v1.0", "refs/pr/1")

    class Handler(Answering):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.*")}
            path = unquote(urlsplit(self.path).path)
            asked.append(f"{self.command} {self.path}")
            api = f"/api/{kind}/{NAME}"
            raw = f"{'/datasets' * (kind == 'datasets')}/{NAME}/resolve/{REVISION}/"
            if refused:
                self.refuse(*refused)
            elif path in (api, *(f"{api}/revision/{name}" for name in revisions)):
                siblings = listed([sibling(name, files[name]) for name in sorted(files)])
                about = {"id": NAME, "sha": REVISION, "siblings": siblings, "tags": []}
                self.reply(200, json.dumps(about).encode(), Content_Type="application/json")
            elif path == f"{api}/tree/{REVISION}":
                entries = [entry_of(sibling(name, files[name])) for name in sorted(files)]
                self.reply(200, json.dumps(entries).encode(), Content_Type="application/json")
            elif path.startswith(raw) and path.removeprefix(raw) in files:
                self.send_file(path.removeprefix(raw), files[path.removeprefix(raw)].read_bytes())
            elif path.startswith(f"{api}/revision/"):
                self.refuse(404, "RevisionNotFound")
            else:
                self.refuse(404, "EntryNotFound" if NAME in path else "RepoNotFound")

        def refuse(self, status: int, code: str) -> None:
            self.reply(status, X_Error_Code=code)

        def send_file(self, name: str, content: bytes) -> None:
            tag = f'"{hashlib.sha1(content).hexdigest()}"'
            status, part, where = self.part_of(
                sent(name, content) if self.command == "GET" else content
            )
            if encoded and self.command == "GET":
                part, where = encoded, {"Content_Encoding": "gzip"}
            where |= {"Accept_Ranges": "bytes", "X_Repo_Commit": REVISION}
            self.reply(status, part, ETag=tag, **where)

    with served(Handler) as address:
        yield address, asked


def sibling(name: str, path: Path) -> dict[str, object]:
    """A file as `blobs=true` lists it: small ones by Git's hash, large ones by their own."""
    content = path.read_bytes()
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    about: dict[str, object] = {"rfilename": name, "size": len(content), "blobId": blob}
    if len(content) >= LARGE_BYTES:
        digest = hashlib.sha256(content).hexdigest()
        about["lfs"] = {"size": len(content), "sha256": digest, "pointerSize": 134}
    return about


def entry_of(about: dict[str, Any]) -> dict[str, object]:
    """The same file as in the list of a tree."""
    entry = {"type": "file", "path": about["rfilename"], "oid": about["blobId"]}
    lfs = {"lfs": about["lfs"] | {"oid": about["lfs"]["sha256"]}} if "lfs" in about else {}
    return entry | {"size": about["size"]} | lfs


def leave_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cache and no token of the user; nothing listens on this port."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


def server_of(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., AbstractContextManager[list[str]]]:
    """Serves a folder as the Hub while a block runs; yields the requests."""

    @contextmanager
    def serve(**changes: Any) -> Iterator[list[str]]:
        with small_hub(folder, kind, **changes) as (address, asked), monkeypatch.context() as m:
            m.setenv("HF_ENDPOINT", address)
            yield asked

    return serve

"""A Hugging Face Hub of one dataset or model, with the part of the interface that we use."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

from pipeline.remote import retries

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
) -> Iterator[tuple[str, list[str]]]:
    """Serves `folder` as NAME at REVISION; yields the address and the requests.

    kind: datasets or models. refused: the status and the Hub's error code of every answer. listed:
    changes the list of a model's files. sent: changes what is sent of a file.
    """
    asked: list[str] = []
    revisions = (REVISION, "main", "v1.0", "refs/pr/1")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer()

        def do_HEAD(self) -> None:
            self.answer()

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
                self.send_json({"id": NAME, "sha": REVISION, "siblings": siblings, "tags": []})
            elif path.startswith(raw) and path.removeprefix(raw) in files:
                self.send_file(files[path.removeprefix(raw)])
            elif path.startswith(f"{api}/revision/"):
                self.refuse(404, "RevisionNotFound")
            else:
                self.refuse(404, "EntryNotFound" if NAME in path else "RepoNotFound")

        def refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def send_json(self, value: object) -> None:
            content = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def send_file(self, path: Path) -> None:
            content, status = path.read_bytes(), 200
            if self.command == "GET":
                content = sent(path.relative_to(folder).as_posix(), content)
            size = len(content)
            span = self.headers.get("Range", "")
            if span:
                first, _, last = span.removeprefix("bytes=").partition("-")
                start, stop = int(first), min(int(last or size - 1), size - 1)
                content, status = content[start : stop + 1], 206
            self.send_response(status)
            if span:
                self.send_header("Content-Range", f"bytes {start}-{stop}/{size}")
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("X-Repo-Commit", REVISION)
            self.send_header("ETag", f'"{hashlib.sha1(path.read_bytes()).hexdigest()}"')
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()


def sibling(name: str, path: Path) -> dict[str, object]:
    """A file as `blobs=true` lists it: small ones by Git's hash, large ones by their own."""
    content = path.read_bytes()
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    about: dict[str, object] = {"rfilename": name, "size": len(content), "blobId": blob}
    if len(content) >= LARGE_BYTES:
        digest = hashlib.sha256(content).hexdigest()
        about["lfs"] = {"size": len(content), "sha256": digest, "pointerSize": 134}
    return about


def leave_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cache and no token of the user, no pauses; nothing listens on this port."""
    monkeypatch.setattr(retries, "sleep", lambda seconds: None)
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

"""A server on the loopback with the layouts of Common Crawl's and Wikimedia's, and their moods."""

import gzip
import hashlib
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext

import pytest

from pipeline.ingest.corpora import common_crawl, wikimedia
from pipeline.remote import http

Answer = Callable[["Request"], None]
"""What a test has the server do instead of sending a file."""


@dataclass
class Publisher:
    """Files by path, and what was asked for."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    moods: dict[str, list[Answer]] = field(default_factory=lambda: defaultdict(list))
    """By path, what happens to its next GETs, one each."""
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """Method, path and headers of every request."""
    stated: str = ""
    """Content-Length of every file, in place of its own."""

    def put_month(self, month: str, warcs: dict[str, bytes]) -> list[str]:
        """Publish WARC files, by the last part of their names; returns their paths."""
        folder = f"crawl-data/CC-NEWS/{month.replace('-', '/')}"
        stamp = f"CC-NEWS-{month.replace('-', '')}01010000"
        paths = {f"{folder}/{stamp}-{name}.warc.gz": content for name, content in warcs.items()}
        self.files |= paths
        self.files[f"{folder}/warc.paths.gz"] = gzip.compress("\n".join([*paths, ""]).encode())
        return [*paths]

    def put_dump(self, dump: str, parts: dict[str, bytes], **job: object) -> list[str]:
        """Publish parts of a dump, by the ends of their names; returns their paths."""
        stem = f"{dump.replace('/', '-')}-pages-articles"
        files = {f"{stem}{name}": content for name, content in parts.items()}
        self.files |= {f"{dump}/{name}": content for name, content in files.items()}
        sha1 = {name: hashlib.sha1(content).hexdigest() for name, content in files.items()}
        about = {
            name: {"size": len(content), "url": f"/{dump}/{name}", "sha1": sha1[name]}
            for name, content in files.items()
        }
        other = {f"{dump.replace('/', '-')}-site_stats.sql.gz": {"size": 1, "sha1": "0" * 40}}
        jobs = {
            "sitestatstable": {"status": "done", "files": other},
            "articlesdump": {"status": "done", "files": about} | job,
        }
        status = {"version": "0.8", "jobs": jobs}
        self.files[f"{dump}/dumpstatus.json"] = json.dumps(status).encode()
        return [f"{dump}/{name}" for name in files]

    def gets(self, path: str = "") -> list[dict[str, str]]:
        """Headers of the GETs of a path, or of all files but the lists."""
        return [
            headers
            for method, asked, headers in self.asked
            if method == "GET" and (asked == path or (not path and asked.endswith((".gz", ".bz2"))))
            if path or not asked.endswith("warc.paths.gz")
        ]

    def tag(self, path: str) -> str:
        digits = hashlib.md5(self.files[path]).hexdigest()
        return f'"{digits}"'


class Answering(BaseHTTPRequestHandler):
    """Answers a HEAD like a GET, without the content, and logs nothing."""

    def do_GET(self) -> None:
        self.answer()

    def do_HEAD(self) -> None:
        self.answer()

    def answer(self) -> None:
        raise NotImplementedError

    def reply(self, status: int, content: bytes = b"", **headers: object) -> None:
        """headers: `_` in their names is `-`; Content-Length is that of the content by default."""
        self.send_response(status)
        for name, value in ({"Content_Length": len(content)} | headers).items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command == "GET":
            with suppress(ConnectionError):  # a killed client
                self.wfile.write(content)

    def part_of(self, content: bytes) -> tuple[int, bytes, dict[str, str]]:
        """Status, content and headers of the answer with what the client's Range asks for."""
        if not (span := self.headers.get("Range", "")):
            return 200, content, {}
        first, _, last = span.removeprefix("bytes=").partition("-")
        start, stop = int(first), min(int(last or len(content) - 1), len(content) - 1)
        where = {"Content_Range": f"bytes {start}-{stop}/{len(content)}"}
        return 206, content[start : stop + 1], where

    def log_message(self, *_: object) -> None:
        pass


class Request(Answering):
    """Answers with files, with ranges of them, or as the mood is."""

    publisher: Publisher

    def answer(self) -> None:
        path = self.path.removeprefix("/")
        self.publisher.asked.append((self.command, path, dict(self.headers.items())))
        moods = self.publisher.moods[path]
        if self.command == "GET" and moods:
            moods.pop(0)(self)
        elif path in self.publisher.files:
            self.send_file()
        else:
            self.send_error(404)

    def send_file(self, most: int = 1 << 30, stated: int | None = None, tag: str = "") -> None:
        """most: bytes after which the connection is cut; stated: the length in the header."""
        path = self.path.removeprefix("/")
        content, tag = self.publisher.files[path], tag or self.publisher.tag(path)
        if self.headers.get("If-Range", tag) != tag:
            del self.headers["Range"]
        status, content, where = self.part_of(content)
        length = self.publisher.stated or (len(content) if stated is None else stated)
        self.reply(status, content[:most], ETag=tag, Content_Length=length, **where)


def cut(after: int) -> Answer:
    """The connection ends after some bytes."""
    return lambda request: request.send_file(most=after)


def saying(status: int, retry_after: str = "") -> Answer:
    """An error, with what the server wishes."""
    return answering(status, {"Retry-After": retry_after} if retry_after else {})


def answering(status: int, headers: dict[str, str]) -> Answer:
    """An answer without content."""
    return lambda request: request.reply(status, **headers)


@contextmanager
def served(kind: type[Answering], encrypting: SSLContext | None = None) -> Iterator[str]:
    """The address of a server while the block runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    if encrypting:
        server.socket = encrypting.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http{'s' * bool(encrypting)}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def publisher() -> Iterator[Publisher]:
    """A server with no files yet."""
    found = Publisher()
    with served(type("OneRequest", (Request,), {"publisher": found})) as found.address:
        yield found


@contextmanager
def standing_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    """The same server in place of Common Crawl and Wikimedia; retries do not wait."""
    monkeypatch.setattr(http, "sleep", lambda seconds: None)
    with publisher() as found:
        monkeypatch.setattr(common_crawl, "COMMON_CRAWL", found.address)
        monkeypatch.setattr(wikimedia, "WIKIMEDIA", found.address)
        yield found

"""Copies of published files: whole or not at all, politely, for a while or kept."""

import hashlib
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import DataError
from pipeline.execution.workers import local_executor
from pipeline.remote import copies
from pipeline.remote.copies import fetch_file, fetched, is_here, partial_path, remove_copies
from pipeline.remote.http import look_up
from pipeline.remote.kept_lists import Keeping, PublishedFile, published_files
from tests.pipeline.remote.publishers import (
    Answer,
    Publisher,
    Request,
    answering,
    cut,
    publisher,
    saying,
)

CONTENT = random.Random(0).randbytes(50_000)
PATH = "some/file.warc.gz"


@pytest.fixture
def server() -> Iterator[Publisher]:
    with publisher() as found:
        found.files[PATH] = CONTENT
        yield found


def listed(server: Publisher, folder: Path, **changes: Any) -> PublishedFile:
    return PublishedFile(
        **{
            "url": f"{server.address}/{PATH}", "path": PATH, "size": len(CONTENT), "hash": "",
            "version": server.tag(PATH), "connections": 2, "downloads": folder, "is_kept": True,
        } | changes
    )  # fmt: skip


def whole(file: PublishedFile) -> bytes:
    """The content of a copy that is kept, with nothing left next to it."""
    fetch_file(file, file.place)
    left = [path.name for path in file.place.parent.iterdir() if path.suffix != ".lock"]
    assert left == ["file.warc.gz"]
    return file.place.read_bytes()


def begun(file: PublishedFile, content: bytes) -> Path:
    """What a killed transfer has left."""
    partial = partial_path(file)
    partial.parent.mkdir(parents=True)
    partial.write_bytes(content)
    return partial


def all_of_it(request: Request) -> None:
    """By a server without ranges."""
    del request.headers["Range"]
    request.send_file()


@pytest.mark.parametrize(
    ("moods", "kept", "changes", "starts"),
    [
        ([], 0, {}, [0]),
        ([cut(20_000), cut(10_000)], 0, {}, [0, 20_000, 30_000]),
        ([], 30_000, {}, [30_000]),
        ([cut(20_000)], 0, {"version": ""}, [0, 0]),  # without version or hash it starts over
        ([cut(20_000), all_of_it], 0, {}, [0, 20_000]),
    ],
)
def test_a_file_is_fetched_once_though_transfers_are_cut_or_killed(
    moods: list[Answer], kept: int, changes: dict[str, str], starts: list[int], server: Publisher,
    tmp_path: Path, pauses: list[float],
) -> None:  # fmt: skip
    """And nobody sees the half of it under the file's name."""
    file = listed(server, tmp_path, **changes)
    if kept:
        begun(file, CONTENT[:kept])
    server.moods[PATH] = [*moods]
    for _ in range(2):
        assert whole(file) == CONTENT
    ranges = [(head.get("Range"), head.get("If-Range")) for head in server.gets(PATH)]
    tag = server.tag(PATH)
    assert ranges == [(f"bytes={start}-", tag) if start else (None, None) for start in starts]
    assert pauses == [1] * (len(starts) - 1), "a transfer that gets on is not paused for longer"


def test_versions_are_never_joined(server: Publisher, tmp_path: Path) -> None:
    """A part of another version is not continued, and a file that changes is refused."""
    file = listed(server, tmp_path)
    assert partial_path(file) != begun(listed(server, tmp_path, version='"older"'), b"x" * 30_000)
    server.moods[PATH] = [cut(20_000), lambda request: request.send_file(tag='"newer"')]
    with pytest.raises(DataError, match='has version "newer"'):
        fetch_file(file, file.place)
    assert not file.place.exists()


NO_LENGTHS = ("9" * 5000, "-5", str(10**18), "x")


def one_byte_more(request: Request) -> None:
    """Than is listed, without a length."""
    request.send_response(200)
    request.end_headers()
    request.wfile.write(CONTENT + b"x")


def test_other_files_are_refused_at_once(
    server: Publisher, tmp_path: Path, pauses: list[float]
) -> None:
    answers: list[tuple[Answer, str]] = [
        (lambda request: request.send_file(stated=len(CONTENT) - 1), "49,999 bytes, not 50,000"),
        (lambda request: request.send_file(stated=len(CONTENT) + 1), "50,001 bytes, not 50,000"),
        (one_byte_more, "more than 50,000 bytes"),
        (saying(403), rf"{PATH} .*HTTP 403"),
        (saying(404), rf"{PATH} .*HTTP 404"),
    ]
    for length in NO_LENGTHS:
        answers.append((answering(206, {"Content-Range": f"bytes {length}-9/10"}), "got others"))
    for number, (answer, message) in enumerate(answers, 1):
        server.moods[PATH] = [answer]
        with pytest.raises(DataError, match=message):
            fetch_file(listed(server, tmp_path), tmp_path / PATH)
        assert not (tmp_path / PATH).exists()
        assert not pauses and len(server.gets(PATH)) == number


def test_a_file_may_have_no_stated_length(
    server: Publisher, tmp_path: Path, pauses: list[float]
) -> None:
    for number, server.stated in enumerate(NO_LENGTHS):
        with pytest.raises(DataError, match="not state its length"):
            look_up(f"{server.address}/{PATH}")
        assert whole(listed(server, tmp_path / str(number))) == CONTENT
    assert not pauses


def test_an_endless_answer_does_not_fill_the_disk(server: Publisher, tmp_path: Path) -> None:
    sent: list[int] = []

    def endless(request: Request) -> None:
        request.send_response(200)
        request.end_headers()
        with suppress(ConnectionError):
            while len(sent) < 400:  # more than is on its way in any buffer
                sent.append(request.wfile.write(CONTENT))

    server.moods[PATH] = [endless]
    with pytest.raises(DataError, match="more than 50,000 bytes"):
        fetch_file(listed(server, tmp_path), tmp_path / PATH)
    assert not (tmp_path / PATH).exists() and len(sent) < 400


def test_hashes_are_checked(server: Publisher, tmp_path: Path) -> None:
    """Published ones, and an ETag that is one."""
    right = {kind: hashlib.new(kind, CONTENT).hexdigest() for kind in ("md5", "sha1", "sha256")}
    version = server.tag(PATH)
    rows = [(kind, {"hash": digits, "version": ""}) for kind, digits in right.items()]
    for number, (kind, published) in enumerate([*rows, ("md5", {"version": version})]):
        server.files[PATH] = b"x" + CONTENT[1:]
        server.moods[PATH] = [lambda request: request.send_file(tag=version)] * 2
        damaged = listed(server, tmp_path / "damaged", **published)
        with pytest.raises(DataError, match=f"twice, its {kind} .*{right[kind]}"):
            fetch_file(damaged, damaged.place)
        assert not damaged.place.exists()
        server.files[PATH] = CONTENT
        file = listed(server, tmp_path / str(number), **published, is_kept=True)
        begun(file, b"x" * 30_000)
        assert whole(file) == CONTENT
    server.is_md5 = False
    assert whole(listed(server, tmp_path / "uploaded in parts")) == CONTENT


def test_connections_are_limited_over_all_who_share_a_directory(tmp_path: Path) -> None:
    url, inside, most = "http://a.org/b", 0, 0
    lock, all_in = threading.Lock(), threading.Barrier(6)

    def work() -> None:
        nonlocal inside, most
        all_in.wait(10)
        with copies.connection(tmp_path, url, 2):
            with lock:
                inside += 1
                most = max(most, inside)
            threading.Event().wait(0.02)
            with lock:
                inside -= 1

    with ThreadPoolExecutor(6) as pool:
        done = [pool.submit(work) for _ in range(6)]
    assert [each.result() for each in done] == [None] * 6
    assert most == 2 and not inside


@pytest.mark.usefixtures("no_locks")
def test_a_file_system_without_locks(server: Publisher, tmp_path: Path) -> None:
    """Processes that fetch the same file do not write to the same place."""
    file = listed(server, tmp_path)
    partial = begun(file, CONTENT[:30_000])
    fetch_file(file, file.place)
    assert (tmp_path / PATH).read_bytes() == CONTENT
    assert partial.read_bytes() == CONTENT[:30_000], "it is another's"


def published(server: Publisher, folder: Path, count: int = 1) -> list[PublishedFile]:
    """Files that are not kept."""
    paths = server.put_month("2019-02", {f"{n:05d}": bytes([n]) * 1000 for n in range(count)})
    listing = [{"path": path, "version": server.tag(path), "size": 1000} for path in paths]
    keeping = Keeping(downloads=folder, is_kept=False)
    return published_files("", listing, keeping, base=server.address, connections=8)


def left(folder: Path) -> list[str]:
    files = (path for path in folder.rglob("*.*") if path.is_file() and path.suffix != ".lock")
    return sorted(path.name for path in files)


def test_a_copy_lasts_as_long_as_it_is_used_or_is_kept(server: Publisher, tmp_path: Path) -> None:
    [file] = published(server, tmp_path)
    copy = fetched(file)
    assert copy.read_bytes() == bytes(1000) and copy == copies.passing_path(file) != file.place
    assert left(tmp_path) == [copy.name] and not is_here(file)
    assert fetched(file) == copy and len(server.gets()) == 1
    remove_copies([file])
    assert not left(tmp_path)
    file = replace(file, is_kept=True)  # it has the published path
    for _ in range(2):
        assert fetched(file) == file.place == tmp_path / file.path
        remove_copies([file])
    assert copies.read_beginning(file, 3)[0] == bytes(3)
    assert left(tmp_path) == [file.place.name] and is_here(file)
    assert len(server.gets()) == 2
    file.place.write_bytes(b"half")
    with pytest.raises(DataError, match="has 4 bytes, and 1,000 are published; remove it"):
        is_here(file)


def test_what_was_fetched_before_is_used_and_stays(server: Publisher, tmp_path: Path) -> None:
    files = published(server, tmp_path, 3)
    server.moods[files[1].path] = [cut(100)]
    copies.fetch_all(files[:2], local_executor(1))
    assert left(tmp_path) == [file.place.name for file in files[:2]]
    copies.fetch_all(files, local_executor(1))
    assert len(server.gets()) == 4
    assert fetched(files[0]) == files[0].place
    remove_copies(files[:1])
    assert left(tmp_path) == [file.place.name for file in files]


def test_what_nobody_needs_is_removed(server: Publisher, tmp_path: Path) -> None:
    done, other = published(server, tmp_path, 2)
    done.place.parent.mkdir(parents=True)
    for file in (done, other):
        copy = copies.passing_path(file)
        copy.write_bytes(b"x")
        copy.with_suffix(".part").write_bytes(b"y")
    remove_copies([done])
    assert len(left(tmp_path)) == 2 and all(other.place.name in name for name in left(tmp_path))

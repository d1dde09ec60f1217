"""Files whole or not at all, lists, and what is refused at once, by a server on the loopback."""

import base64
import hashlib
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pipeline import __version__
from pipeline.base.errors import ConfigError, DataError
from pipeline.remote import http
from pipeline.remote.http import download, is_gone, look_up, read_small, read_start, user_agent
from tests.pipeline.remote.publishers import (
    Answer,
    Publisher,
    Request,
    answering,
    cut,
    publisher,
    saying,
)

CONTENT = random.Random(0).randbytes(300_000)
PATH = "some/file.warc.gz"
LARGE = 70_000
"""A gain after which a failure is the first in a row again."""


@pytest.fixture
def server() -> Iterator[Publisher]:
    with publisher() as found:
        found.files |= {"list": b"content", PATH: CONTENT}
        yield found


def whole(
    server: Publisher, folder: Path, size: int | None = len(CONTENT), sha1: str = ""
) -> bytes:
    """The file as it is fetched, with nothing left next to it."""
    download(f"{server.address}/{PATH}", folder / PATH, size, sha1)
    assert [path.name for path in (folder / PATH).parent.iterdir()] == ["file.warc.gz"]
    return (folder / PATH).read_bytes()


def all_of_it(request: Request) -> None:
    """By a server without ranges."""
    del request.headers["Range"]
    request.send_file()


def without_version(request: Request) -> None:
    request.reply(200, CONTENT[:LARGE], Content_Length=len(CONTENT))


@pytest.mark.parametrize(
    ("moods", "starts", "waits"),
    [
        ([], [0], []),
        ([cut(LARGE), cut(LARGE)], [0, LARGE, 2 * LARGE], [1, 1]),
        ([cut(9), cut(9), cut(9)], [0, 9, 18, 27], [1, 2, 4]),
        ([cut(LARGE), all_of_it], [0, LARGE], [1]),
        ([without_version], [0, 0], [1]),  # the rest could be another version's
        (
            [saying(503), saying(429, "7"), saying(500, "9999"), cut(9)],
            [0] * 4 + [9],
            [1, 7, 300, 8],
        ),
    ],
)
def test_a_transfer_that_is_cut_continues(
    moods: list[Answer], starts: list[int], waits: list[float], server: Publisher, tmp_path: Path,
    pauses: list[float],
) -> None:  # fmt: skip
    server.moods[PATH] = [*moods]
    assert whole(server, tmp_path) == CONTENT
    tag = server.tag(PATH)
    ranges = [(head.get("Range"), head.get("If-Range")) for head in server.gets(PATH)]
    assert ranges == [(f"bytes={start}-", tag) if start else (None, None) for start in starts]
    assert pauses == waits


def newer(request: Request) -> None:
    """The server has another version from now on, of the same length."""
    request.publisher.files[PATH] = bytes(len(CONTENT))
    request.send_file()


def test_versions_are_never_joined(server: Publisher, tmp_path: Path) -> None:
    server.moods[PATH] = [cut(LARGE), newer]
    assert whole(server, tmp_path) == bytes(len(CONTENT))


def other_bytes(request: Request) -> None:
    request.reply(206, CONTENT, Content_Range=f"bytes 5-9/{len(CONTENT)}")


def endless(request: Request) -> None:
    """Without a length."""
    request.send_response(200)
    request.end_headers()
    with suppress(ConnectionError):
        for _ in range(400):  # more than is on its way in any buffer
            request.wfile.write(CONTENT)
        request.publisher.files["all of it was taken"] = b""


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda request: request.send_file(stated=299_999), "299,999 bytes, and 300,000 are publ"),
        (lambda request: request.send_file(stated=300_001), "300,001 bytes, and 300,000 are publ"),
        (other_bytes, "asked for bytes from 0, got others"),
        (endless, "more than the 300,000 bytes"),
        (saying(403), "HTTP 403"),
        (saying(404), "HTTP 404"),
        (saying(410), "HTTP 410"),
    ],
)
def test_other_files_are_refused_at_once(
    answer: Answer, message: str, server: Publisher, tmp_path: Path, pauses: list[float]
) -> None:
    server.moods[PATH] = [answer]
    with pytest.raises(DataError, match=message):
        whole(server, tmp_path)
    assert not [*(tmp_path / PATH).parent.iterdir()]
    assert not pauses and "all of it was taken" not in server.files


def test_hashes_are_compared(server: Publisher, tmp_path: Path) -> None:
    right = hashlib.sha1(CONTENT).hexdigest()
    assert whole(server, tmp_path, None, right) == CONTENT
    server.files[PATH] = b"x" + CONTENT[1:]
    with pytest.raises(DataError, match=f"its SHA-1 is not {right}"):
        whole(server, tmp_path / "damaged", None, right)
    assert not [*(tmp_path / "damaged/some").iterdir()]


@pytest.mark.parametrize("length", ["9" * 5000, "-5", str(10**18), "x"])
def test_a_file_may_have_no_stated_length(length: str, server: Publisher, tmp_path: Path) -> None:
    server.stated = length
    assert look_up(f"{server.address}/{PATH}") == (None, server.tag(PATH))
    assert whole(server, tmp_path) == CONTENT


def test_a_killed_transfer_leaves_nothing_that_is_taken_for_whole(
    server: Publisher, tmp_path: Path
) -> None:
    code = (
        "import sys; from pathlib import Path; from pipeline.remote.http import download; "
        "download(sys.argv[1], Path(sys.argv[2]))"
    )
    url, path = f"{server.address}/{PATH}", tmp_path / PATH
    started = subprocess.Popen(
        [sys.executable, "-c", code, url, str(path)], stdin=subprocess.PIPE, text=True
    )

    def kill(request: Request) -> None:
        request.reply(200, CONTENT[:LARGE], Content_Length=len(CONTENT))
        request.wfile.flush()
        while not [file for file in path.parent.iterdir() if file.stat().st_size]:
            time.sleep(0.01)
        started.send_signal(signal.SIGKILL)
        started.wait(60)

    server.moods[PATH] = [kill]
    assert started.wait(120) == -signal.SIGKILL
    [left] = path.parent.iterdir()
    assert left.name.startswith(".") and left.name.endswith(".tmp")
    download(url, path)
    assert path.read_bytes() == CONTENT


def test_in_a_job_of_slurm_nothing_is_fetched_unless_asked(
    server: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TENFOLD_FETCH", raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    for call in (
        lambda: read_small(f"{server.address}/list"),
        lambda: look_up(f"{server.address}/list"),
        lambda: whole(server, tmp_path),
    ):
        with pytest.raises(
            ConfigError, match=r"--fetch on a machine with network.*TENFOLD_FETCH=1"
        ):
            call()
    assert not server.asked
    monkeypatch.setenv("TENFOLD_FETCH", "1")
    assert read_small(f"{server.address}/list") == b"content"


def test_publishers_can_reach_the_user(server: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a contact in any script."""
    assert user_agent() == f"Tenfold/{__version__} (text for pretraining)"
    monkeypatch.setenv("TENFOLD_CONTACT", "me@lab.org\r\nX: y")
    assert user_agent() == f"Tenfold/{__version__} (text for pretraining; me@lab.org X: y)"
    monkeypatch.setenv("TENFOLD_CONTACT", "Jürgen 王 <j%40@lab.org>\x7f\udcff")
    assert read_small(f"{server.address}/list") == b"content"
    [(_, _, headers)] = server.asked
    contact = headers["User-Agent"].partition("; ")[2]
    assert contact == "J%C3%BCrgen %E7%8E%8B <j%40@lab.org>%7F%FF)"


def test_other_letters_are_encoded(server: Publisher) -> None:
    server.files["%C3%BC[1]%20x"] = b"here"
    assert read_small(f"{server.address}/ü[1] x") == b"here"


def test_what_is_no_address_is_refused_at_once(server: Publisher, pauses: list[float]) -> None:
    """Given or redirected to."""
    for url in ("http://[", "http://a:x/", "http://", "ftp://a/", "file:///etc/passwd", "a.org"):
        with pytest.raises(DataError, match="check the address"):
            read_small(url)
    for location in ("http://[", "http://a:x/"):
        server.moods["list"] = [answering(302, {"Location": location})]
        with pytest.raises(DataError, match="check the address"):
            read_small(f"{server.address}/list")
    assert not pauses


def test_secrets_are_sent_and_never_shown(
    server: Publisher, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nor sent to where a redirect leads."""
    given = server.address.replace("://", "://me:s3%20cret@")
    for answer in (saying(403), saying(404), answering(302, {"Location": "/list"}), saying(500)):
        server.moods["x?token=topsecret"] = [answer, saying(500), saying(503), saying(418)]
        with suppress(DataError):
            read_small(f"{given}/x?token=topsecret#s3cret")
    said = "".join(capfd.readouterr())
    for word in ("s3%20cret", "s3 cret", "topsecret"):
        assert word not in said
        server.moods["y?token=topsecret"] = [answering(302, {"Location": f"http://[{word}"})]
        with pytest.raises(DataError) as caught:
            read_small(f"{given}/y?token=topsecret")
        assert word not in str(caught.value)
    logins = {path: headers.get("Authorization") for _, path, headers in server.asked}
    assert logins["x?token=topsecret"] == f"Basic {base64.b64encode(b'me:s3 cret').decode()}"
    assert logins["list"] is None


def test_redirects(server: Publisher, pauses: list[float]) -> None:
    """Ten are followed, to addresses that can be fetched; the last answer counts."""
    for number in range(10):
        server.moods[f"{number}"] = [answering(302, {"Location": f"/{number + 1}"})]
    server.files["10"] = b"found"
    assert read_small(f"{server.address}/0") == b"found"
    server.moods["start"] = [answering(302, {"Location": "/1"})]
    server.moods["1"] = [answering(307, {"Location": "/gone"})]
    with pytest.raises(DataError, match="HTTP 404") as caught:
        read_small(f"{server.address}/start")
    assert is_gone(caught.value)
    for location in ("ftp://127.0.0.1/list", "file:///etc/passwd", "data:,x", "", "mailto:a"):
        server.moods["moved"] = [answering(301, {"Location": location} if location else {})]
        with pytest.raises(DataError, match="HTTP 301"):
            read_small(f"{server.address}/moved")
    assert not pauses


def test_a_redirect_loop_says_so(server: Publisher, pauses: list[float]) -> None:
    server.moods["a"] = [answering(302, {"Location": "/b"})] * 20
    server.moods["b"] = [answering(302, {"Location": "/a"})] * 20
    with pytest.raises(DataError, match="HTTP 302: redirected in a loop") as caught:
        read_small(f"{server.address}/a")
    assert "\n" not in str(caught.value) and not pauses


def dripping(start: bytes) -> Answer:
    """One byte every 10 ms after `start`, for three seconds."""

    def drip(request: Request) -> None:
        with suppress(ConnectionError):
            request.wfile.write(start)
            for _ in range(300):
                request.wfile.write(b"x")
                time.sleep(0.01)

    return drip


@pytest.mark.parametrize(
    "start", [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"]
)
def test_a_server_that_drips_is_given_up(
    start: bytes, server: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the header as in the content; each byte alone would not be too late."""
    monkeypatch.setattr(http, "_WATCHED_SECONDS", 0.1)
    server.moods["list"] = [dripping(start)] * 2
    assert read_small(f"{server.address}/list") == b"content"
    assert len(server.asked) == 3


def test_a_list_has_a_bound_and_is_whole(server: Publisher, pauses: list[float]) -> None:
    url = f"{server.address}/list"
    server.moods["list"] = [cut(3), saying(500)]
    assert read_small(url) == b"content" and pauses == [1, 2]
    server.moods["list"] = [endless]
    with pytest.raises(DataError, match="is not a list: over 16 MiB"):
        read_small(url)


def test_beginnings(server: Publisher) -> None:
    url = f"{server.address}/{PATH}"
    assert read_start(url, 9) == CONTENT[:9] and read_start(url, 1 << 20) == CONTENT
    assert server.gets(PATH)[0]["Range"] == "bytes=0-8"
    server.moods[PATH] = [all_of_it]
    assert read_start(url, 9) == CONTENT[:9]


def test_without_an_answer_it_ends_soon(
    pauses: list[float], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(
        DataError, match=r"http://127.0.0.1:9/x cannot be fetched \(.*refused.*again"
    ):
        read_small("http://127.0.0.1:9/x?token=topsecret")
    assert pauses == [1, 2, 4, 8]
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 3 and lines[-1].endswith("; next attempt in 8 s")
    assert "topsecret" not in "".join(lines)


def test_a_server_that_only_fails_is_given_up(server: Publisher, pauses: list[float]) -> None:
    server.moods["list"] = [saying(500)] * 99
    with pytest.raises(DataError, match="HTTP 500"):
        read_small(f"{server.address}/list")
    assert len(pauses) == 14 and pauses[-1] == 300


def test_a_full_disk_is_not_tried_again(
    server: Publisher, tmp_path: Path, pauses: list[float]
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGE, hard))
    try:
        with pytest.raises(DataError, match=r"cannot write .*File too large"):
            whole(server, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not pauses and not [*(tmp_path / PATH).parent.iterdir()]

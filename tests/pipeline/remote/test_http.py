"""Addresses, headers, redirects and lists: what cannot work is refused at once."""

import email.utils
import io
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPMessage

import pytest

from pipeline import __version__
from pipeline.base.errors import DataError
from pipeline.remote import http
from pipeline.remote.http import (
    Redirects,
    encoded_url,
    is_gone,
    length_of,
    look_up,
    read_small,
    read_start,
    user_agent,
)
from tests.pipeline.remote.publishers import (
    Answer,
    Publisher,
    Request,
    answering,
    cut,
    publisher,
    saying,
)


@pytest.fixture
def server() -> Iterator[Publisher]:
    with publisher() as found:
        found.files["list"] = b"content"
        yield found


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


def test_addresses_are_encoded(server: Publisher) -> None:
    for url, encoded in {
        "https://data.commoncrawl.org/a/b.gz": "https://data.commoncrawl.org/a/b.gz",
        "http://Bücher.example:80/ü": "http://xn--bcher-kva.example:80/%C3%BC",
        "http://[::1]:80/a [b]%20": "http://[::1]:80/a%20[b]%20",
        "http://a/b?c=ü&d#e": "http://a/b?c=%C3%BC&d",
    }.items():
        assert encoded_url(url) == encoded == encoded_url(encoded)
    server.files["%C3%BC[1]%20x"] = b"here"
    assert read_small(f"{server.address}/ü[1] x") == b"here"


def test_what_is_no_address_is_refused_at_once(server: Publisher, pauses: list[float]) -> None:
    """Given or redirected to."""
    for url in (
        "http://[", "http://a]b/", "http://a:x/", "http://a:99999/", "http://", "ftp://a/", "a.org",
        f"http://{'ü' * 70}/", "http://a b/", "http://me:key@a/", "http://a/\udcff", "http://ü..a/",
        "http://[1", "http://℀/",
    ):  # fmt: skip
        with pytest.raises(DataError, match="check the addr") as caught:
            read_small(url)
        assert "key" not in str(caught.value)
    for location in ("http://[", "http://a:x/", f"http://{'a' * 64}.org/"):
        server.moods["list"] = [answering(302, {"Location": location})]
        with pytest.raises(DataError, match="check the address"):
            read_small(f"{server.address}/list")
    assert not pauses


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
    file, mail = "file:///etc/passwd", "mailto:a"
    for location in ("/list0", "ftp://127.0.0.1/list", file, "data:,x", "", mail):
        server.asked.clear()
        for number in range(12):
            to = f"/list{number + 1}" if location == "/list0" else location
            server.moods[f"list{number}"] = [answering(301, {"Location": to} if to else {})]
        with pytest.raises(DataError, match=r"redirected .* \(HTTP 301"):
            read_small(f"{server.address}/list0")
        assert len(server.asked) <= 11
    assert not pauses


def test_a_redirect_loop_says_so(server: Publisher, pauses: list[float]) -> None:
    server.moods["a"] = [answering(302, {"Location": "/b"})] * 20
    server.moods["b"] = [answering(302, {"Location": "/a"})] * 20
    with pytest.raises(DataError, match=r"/a is redirected in a loop, .* \(HTTP 302\)") as caught:
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


def test_a_redirect_leaves_no_secure_connection() -> None:
    def redirected(target: str) -> urllib.request.Request | None:
        request = urllib.request.Request("https://a.org/list")
        return Redirects().redirect_request(request, io.BytesIO(), 302, "", HTTPMessage(), target)

    with pytest.raises(urllib.error.HTTPError, match="https to http"):
        redirected("http://a.org/list")
    found = redirected("https://b.org/list")
    assert found and found.full_url == "https://b.org/list"


def test_small_files_and_looks(server: Publisher, pauses: list[float]) -> None:
    url = f"{server.address}/list"
    server.moods["list"] = [cut(3), saying(503)]
    assert read_small(url) == b"content"
    assert look_up(url) == (7, server.tag("list"))
    assert read_start(url, 3)[0] == b"con"
    assert read_start(url, 10**9)[0] == b"content"
    assert pauses == [1, 2]


def test_no_network_is_known_soon_and_credentials_are_not_shown(
    pauses: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DataError, match=r"5 attempts.*network"):
        read_small("http://127.0.0.1:9/list")
    assert pauses == [1, 2, 4, 8]
    with pytest.raises(DataError, match=r"^http://127.0.0.1:9/list ") as caught:
        read_small("http://me:top@secret@127.0.0.1:9/list?key=deadbeef")
    said = str(caught.value) + "".join(capsys.readouterr())
    assert not any(secret in said for secret in ("top@", "secret", "deadbeef")), said


def test_a_list_of_any_length_is_not_held(
    server: Publisher, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    monkeypatch.setattr(http, "_MOST_LIST_BYTES", 6)
    with pytest.raises(DataError, match="over 0 MiB"):
        read_small(f"{server.address}/list")
    server.moods["list"] = [cut(3)]
    with pytest.raises(DataError, match="not a list"):
        read_small(f"{server.address}/list")
    assert not pauses


def test_a_busy_server_is_waited_for_as_it_wishes(
    server: Publisher, pauses: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """Within limits, whatever it says."""
    in_100_seconds = email.utils.formatdate(time.time() + 100, usegmt=True)
    for status, wish, least, most in (
        (500, "", 1, 1),
        (429, "7", 7, 7),
        (503, in_100_seconds, 90, 100),
        (503, "9" * 5000, 600, 600),
        (503, "Mon, 1 Jan 1 00:00:00 +0000", 1, 1),
        (503, f"1 Jan 2030 +{9**99}", 1, 600),
    ):
        server.moods["list"] = [saying(status, wish)]
        assert read_small(f"{server.address}/list") == b"content"
        assert least <= pauses.pop() <= most and not pauses
    assert "HTTP 503 Service Unavailable; next attempt in 600 s" in capsys.readouterr().err


def test_the_length_that_a_header_states() -> None:
    for text, length in ((" 12 ", 12), ("17592186044416", 1 << 44)):
        assert length_of(text) == length
    for text in ("17592186044417", "9" * 5000, "-1", ""):
        assert length_of(text) is None

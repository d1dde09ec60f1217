"""Requests over HTTP: addresses, headers, which failures are final, and small answers.

Servers, mirrors and what is between them can answer anything. What another attempt may change is a
TryAgainError; all else is a DataError at once: an address that cannot be one, an answer such as
404, a redirect to another scheme or the eleventh in a row. Every request names Tenfold.
"""

from __future__ import annotations

import email.utils
import functools
import http.client
import io
import os
import re
import socket
import string
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import IO, Any
from urllib.parse import quote, urlsplit, urlunsplit

from pipeline import __version__
from pipeline.base.errors import DataError
from pipeline.base.shown_urls import show_text, show_url
from pipeline.remote.retries import TryAgainError, patiently

MOST_FILE_BYTES = 1 << 44
"""16 TiB, the largest file of ext4; a length above it is damage."""
_SILENCE_SECONDS = 60
"""Timeout for a server that sends nothing."""
_WATCHED_SECONDS, _LEAST_BYTES = 60.0, 60_000
"""So many bytes must come in so much time of waiting for them: each single byte of a server that
sends one per second is in time."""
_BLOCK_BYTES = 1 << 20
_MOST_LIST_BYTES = 16 << 20
"""Largest list as it is sent; those of dumps and months have up to about a megabyte."""
_FINAL = {
    400: "is refused as a bad request",
    401: "is refused",
    403: "is refused",
    404: "does not exist",
    410: "no longer exists",
    416: "is shorter than listed",
}
"""Answers that another attempt does not change; redirects that are not followed are others."""
_GONE = (404, 410)
_SCHEMES = ("http", "https")
_MOST_REDIRECTS = 10
_AS_IT_IS = "%/:=&?~#+!$,;'@()*[]"
"""Characters of a path or a query that are not percent-encoded, or are what encodes others."""


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a few redirects, but none from https to http; what it refuses is an HTTPError."""

    max_redirections = _MOST_REDIRECTS

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        scheme = urlsplit(newurl).scheme
        if scheme not in _SCHEMES or (req.type, scheme) == ("https", "http"):
            raise urllib.error.HTTPError(newurl, code, f"from {req.type} to {scheme}", headers, fp)
        fp.close()  # or all of its body would be read, of any length
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class Watched(io.RawIOBase):
    """A connection's bytes. Raises TimeoutError if they come too slowly to ever end."""

    def __init__(self, raw: io.RawIOBase) -> None:
        """raw: the socket's own file."""
        self.raw = raw
        self.waited = 0.0
        self.bytes = 0

    def readable(self) -> bool:
        """True, as `io.BufferedReader` asks."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what there is; only the wait for it counts, not what is done with it."""
        began_at = time.monotonic()
        size = self.raw.readinto(buffer) or 0
        self.waited += time.monotonic() - began_at
        self.bytes += size
        if size and self.waited > _WATCHED_SECONDS:
            if self.bytes < _LEAST_BYTES:
                raise TimeoutError(f"only {self.bytes:,} bytes in {self.waited:.0f} s")
            self.waited, self.bytes = 0.0, 0
        return size

    def close(self) -> None:
        """Close the socket's file, too."""
        self.raw.close()
        super().close()


class WatchedResponse(http.client.HTTPResponse):
    """An answer whose header and content are read through `Watched`."""

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        """Arguments: as of the base class."""
        super().__init__(sock, *arguments, **options)
        self.fp.close()
        # Unbuffered, as a buffer inside would wait for more than one byte.
        self.fp = io.BufferedReader(Watched(sock.makefile("rb", buffering=0)))


class Plain(urllib.request.HTTPHandler):
    """Connections with watched answers."""

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open a connection for a request."""
        return self.do_open(_watched(http.client.HTTPConnection), req)


class Secure(urllib.request.HTTPSHandler):
    """The same, encrypted."""

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open a connection for a request."""
        return self.do_open(_watched(http.client.HTTPSConnection), req)


def _watched(kind: type[http.client.HTTPConnection]) -> Any:
    return type(kind.__name__, (kind,), {"response_class": WatchedResponse})


def read_small(url: str) -> bytes:
    """A list or another small file. Raises DataError if it cannot be fetched."""

    def attempt() -> bytes:
        with open_url(url) as response:
            stated = length_of(response.headers.get("Content-Length", ""))
            content = bytearray()
            for block in blocks(response):
                content += block
                if max(len(content), stated or 0) > _MOST_LIST_BYTES:
                    raise DataError(
                        f"{show_url(url)} is not a list: it has over {_MOST_LIST_BYTES >> 20} MiB; "
                        "check the address, or use another mirror"
                    )
            # http.client's read(n) does not complain about a body that ends early.
            if stated is not None and len(content) != stated:
                raise TryAgainError(f"cut after {len(content):,} of {stated:,} bytes")
            return bytes(content)

    return patiently(show_url(url), attempt)


def look_up(url: str) -> tuple[int, str]:
    """The length and version (ETag or date) of a file that the server states, "" for none."""

    def attempt() -> tuple[int, str]:
        with open_url(url, method="HEAD") as response:
            length = length_of(response.headers.get("Content-Length", ""))
            if length is None:
                raise DataError(
                    f"{show_url(url)}: the server does not state its length; use another mirror"
                )
            return length, version_of(response)

    return patiently(show_url(url), attempt)


def read_start(url: str, size: int) -> tuple[bytes, float]:
    """The first `size` bytes of a file, or all if it is shorter, and the seconds they took."""

    def attempt() -> tuple[bytes, float]:
        with open_url(url, headers={"Range": f"bytes=0-{size - 1}"}) as response:
            began_at = time.perf_counter()
            content = b""
            for block in blocks(response):
                content += block
                if len(content) >= size:  # a server without ranges sends all of it
                    break
            return content[:size], time.perf_counter() - began_at

    return patiently(show_url(url), attempt)


def is_gone(error: DataError) -> bool:
    """True if an error of a request means that the server has no such file."""
    cause = error.__cause__
    return isinstance(cause, urllib.error.HTTPError) and cause.code in _GONE


@contextmanager
def open_url(
    url: str, *, method: str = "GET", headers: dict[str, str] | None = None
) -> Iterator[http.client.HTTPResponse]:
    """An answer with status 200 or 206. Raises TryAgainError or DataError for any other."""
    # Uncompressed, or lengths and ranges would be those of the compressed bytes.
    about = {"User-Agent": user_agent(), "Accept-Encoding": "identity"} | (headers or {})
    try:
        request = urllib.request.Request(encoded_url(url), headers=about, method=method)
        response = _opener().open(request, timeout=_SILENCE_SECONDS)
    except urllib.error.HTTPError as error:  # an OSError, so it comes first
        with closing(error):
            raise _refusal(url, error) from error
    except (ValueError, http.client.InvalidURL) as error:  # the URL's, or that of a redirect
        why = show_text(_why(error), url)
        raise DataError(
            f"{show_url(url)} cannot be fetched ({why}); check the address, or use another mirror"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise TryAgainError(show_text(_why(error), url), answered=False) from error
    with response:
        yield response


def version_of(response: http.client.HTTPResponse) -> str:
    """The version that If-Range takes: a strong ETag, or a date."""
    tag = response.headers.get("ETag", "")
    # W/"..." is weak: its bytes may differ.
    return tag if tag.startswith('"') else response.headers.get("Last-Modified", "")


def encoded_url(url: str) -> str:
    """The URL as HTTP takes it: its host in IDNA, other letters percent-encoded (RFC 3987, 3.1).

    Raises ValueError if it is not the address of a server.
    """
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise ValueError("it is not an address that begins with http:// or https://")
    if "@" in parts.netloc:
        raise ValueError("it has a user or a password, which are not sent")
    host = parts.hostname
    if ":" in host:
        host = f"[{host}]"
    elif not host.isascii():
        host = host.encode("idna").decode()
    if quote(host, safe=":[]") != host:
        raise ValueError("its host is not a name")
    place = host if parts.port is None else f"{host}:{parts.port}"
    path, query = quote(parts.path, safe=_AS_IT_IS), quote(parts.query, safe=_AS_IT_IS)
    return urlunsplit((parts.scheme, place, path, query, ""))


def blocks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """The content of an answer. Raises TryAgainError if it is cut."""
    while True:
        try:
            block = response.read(_BLOCK_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise TryAgainError(_why(error)) from error
        if not block:
            return
        yield block


def length_of(text: str) -> int | None:
    """The length that a header states; None if it cannot be a file's."""
    if not re.fullmatch(r"\s*[0-9]{1,20}\s*", text):  # int() refuses 5,000 digits
        return None
    return length if (length := int(text)) <= MOST_FILE_BYTES else None


def user_agent() -> str:
    """The name under which requests are made; publishers block clients without one.

    $TENFOLD_CONTACT, a mail address or a page, is where they reach the user. Headers are ASCII:
    other letters are percent-encoded, as in the addresses of mail and pages (RFC 6068, RFC 3987).
    """
    contact = " ".join(os.environ.get("TENFOLD_CONTACT", "").split())
    contact = quote(contact, safe=f"{string.punctuation} ", errors="surrogateescape")
    return f"Tenfold/{__version__} (text for pretraining{'; ' * bool(contact)}{contact})"


@functools.cache
def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(Redirects, Plain, Secure)


def _refusal(url: str, error: urllib.error.HTTPError) -> Exception:
    what = _FINAL.get(error.code)
    if what:
        return DataError(
            f"{show_url(url)} {what} (HTTP {error.code}); check the name and the address"
        )
    if str(error.reason).startswith(Redirects.inf_msg):
        return DataError(
            f"{show_url(url)} is redirected in a loop, or more than {_MOST_REDIRECTS} times (HTTP "
            f"{error.code}); check the address, or use another mirror"
        )
    if 300 <= error.code < 400:
        return DataError(
            f"{show_url(url)} is redirected to {show_url(error.url)}, which is not followed "
            f"(HTTP {error.code} {show_text(_why(error), url)}); use another mirror"
        )
    wait = _seconds(error.headers.get("Retry-After", ""))  # 429 and 503 ask for it
    return TryAgainError(show_text(f"HTTP {error.code} {error.reason}", url), wait=wait)


def _seconds(wish: str) -> float:
    """Retry-After in seconds; 0 if it cannot be read."""
    if wish.strip().isdecimal():  # else a date (RFC 9110, 10.2.3)
        return float(wish)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(wish).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return " ".join(str(reason).split()) or type(error).__name__

"""Files over HTTP -> whole files on the disk, and publishers' lists in memory, by urllib.

1. A transfer that is cut continues in the same file: the rest is asked for with Range, and with
   If-Range, so two versions of a file are never joined. The file gets its name once it is whole.
2. Network errors, 429 and answers from 500 on are tried again, with pauses; a server that is not
   reached at all is given up soon. Other answers and addresses are refused at once.
3. What a server sends is bounded: by the published or stated length, by 16 MiB for a list, and by
   a minute without enough bytes.
4. In a job of Slurm nothing is fetched unless it was asked for.

User, password and query of a URL are sent to its server and never shown.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import http.client
import os
import re
import ssl
import string
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import IO, Any, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from pipeline import __version__
from pipeline.base.errors import ConfigError, DataError, one_line
from pipeline.base.files import digest_of, make_directory, whole_file
from pipeline.base.shown_urls import show_text, show_url

ASKED = "TENFOLD_FETCH"
"""Environment variable that lets jobs of Slurm use the network."""
MOST_FILE_BYTES = 1 << 44
"""16 TiB, the largest file of ext4; a length above it is damage."""
MOST_LIST_BYTES = 16 << 20
"""Largest list; those of dumps and months have up to about a megabyte."""
OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
"""Errors of writing, which another attempt does not change."""
_SILENCE_SECONDS = 60
"""Timeout for a server that sends nothing."""
_WATCHED_SECONDS, _LEAST_BYTES = 60.0, 60_000
"""So many bytes must come in so much time of waiting for them: each single byte of a server that
sends one per second is in time. A transfer that gained as many before it failed gets on."""
_ATTEMPTS, _FIRST_ATTEMPTS = 15, 5
"""Failures in a row before a file is given up, after about 40 minutes; fewer if no server was ever
reached, as with a wrong address."""
_LONGEST_PAUSE_SECONDS = 300.0
"""Pauses double from one second; Retry-After may ask for longer ones."""
_BLOCK_BYTES = 1 << 20
_GONE = (404, 410)
_BUSY = (408, 425, 429)
"""Refusals that another attempt may not have; others below 500 are final."""
_AS_IT_IS = "%/:=&?~#+!$,;'@()*[]"
"""Characters of a URL that are not percent-encoded, or are what encodes others."""

Result = TypeVar("Result")
Response = http.client.HTTPResponse


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a few redirects, but none from https to http; what it refuses is an HTTPError."""

    max_redirections = 10
    inf_msg = "redirected in a loop, or more than 10 times: "

    def redirect_request(self, req: Any, fp: Any, *answer: Any) -> Any:
        """The next request. Raises HTTPError if there is to be none."""
        code, _, headers, url = answer
        scheme = urlsplit(url).scheme
        if scheme not in ("http", "https") or (req.type, scheme) == ("https", "http"):
            raise urllib.error.HTTPError(url, code, f"redirected to {scheme}", headers, fp)
        fp.close()  # or all of its body would be read, of any length
        return super().redirect_request(req, fp, *answer)


class WatchedResponse(http.client.HTTPResponse):
    """Raises TimeoutError if its header or content comes too slowly to ever end."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Arguments: as of the base class."""
        super().__init__(*arguments, **options)
        connection: Any = self.fp.raw
        connection.readinto = _watched(connection.readinto)


def _watched(read: Callable[[Any], int]) -> Callable[[Any], int]:
    waited, received = 0.0, 0

    def readinto(buffer: Any) -> int:
        nonlocal waited, received
        began_at = time.monotonic()
        size = read(buffer)
        waited += time.monotonic() - began_at  # only for the server, not for the disk
        received += size
        if size and waited > _WATCHED_SECONDS:
            if received < _LEAST_BYTES:
                raise TimeoutError(f"only {received:,} bytes in {waited:.0f} s")
            waited, received = 0.0, 0
        return size

    return readinto


class Connections(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Opens connections of both schemes, with watched answers."""

    def do_open(self, http_class: Any, req: Any, **options: Any) -> Any:
        """Send a request."""
        watching: Any = type("Watching", (http_class,), {"response_class": WatchedResponse})
        return super().do_open(watching, req, **options)


_OPENER = urllib.request.build_opener(Redirects, Connections)


def is_network_asked() -> bool:
    """False in a job of Slurm, unless the user lets it fetch what it needs."""
    return "SLURM_JOB_ID" not in os.environ or os.environ.get(ASKED) == "1"


def ask_for_network() -> None:
    """Let this process and those that it starts fetch, also in a job of Slurm."""
    os.environ[ASKED] = "1"


def require_network(shown: str, first: str = "the same command with --fetch") -> None:
    """Raises ConfigError where nothing may be fetched.

    shown: what is not on the disk yet; first: what fetches it.
    """
    if not is_network_asked():
        raise ConfigError(
            f"{shown} is not in TENFOLD_ROOT, and a job of Slurm uses no network unless asked: run "
            f"{first} on a machine with network, or set {ASKED}=1 where compute nodes have one"
        )


def download(url: str, path: Path, size: int | None = None, sha1: str = "") -> None:
    """Have a file at `path`: whole, or not at all.

    size: its bytes, None for as many as the server states; sha1: in hexadecimal digits, empty if
    none is published. Raises DataError if the server has another file, or does not give it.
    """
    make_directory(path.parent)
    with whole_file(path, size=size or 0) as temporary:
        with temporary.open("wb") as file:
            _fill(url, file, size)
        if sha1 and digest_of(temporary, hashlib.sha1(usedforsecurity=False)) != sha1:
            raise DataError(f"{show_url(url)} is damaged: its SHA-1 is not {sha1}; rerun")


def _fill(url: str, file: IO[bytes], size: int | None) -> None:
    """Write the file's content; what a cut transfer has written stays for the next attempt."""
    version = ""

    def rest() -> dict[str, str]:
        known = version and file.tell()
        return {"Range": f"bytes={file.tell()}-", "If-Range": version} if known else {}

    def take(response: Response) -> None:
        nonlocal version
        start = file.tell()
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            start = 0  # the server ignores Range, or has another version
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise DataError(f"{show_url(url)}: asked for bytes from {start:,}, got others")
        file.seek(start)
        file.truncate()
        version, length = version_of(response), length_of(response)
        whole = size if length is None else start + length
        if size not in (None, whole):
            raise DataError(f"{show_url(url)} has {whole:,} bytes, and {size:,} are published")
        while block := response.read1(_BLOCK_BYTES):  # what is there, so that it is not lost
            file.write(block)
            if whole is not None and file.tell() > whole:  # endless, it would fill the disk
                raise DataError(f"{show_url(url)} has more than the {whole:,} bytes it should have")
        # http.client's read(n) does not complain about a body that ends early.
        if whole is not None and file.tell() < whole:
            raise ConnectionError(f"cut after {file.tell():,} of {whole:,} bytes")

    request(url, take, headers=rest, fetched=file.tell)


def read_small(url: str) -> bytes:
    """A list or another small file. Raises DataError if it cannot be fetched."""

    def take(response: Response) -> bytes:
        content = response.read(MOST_LIST_BYTES + 1)
        if len(content) > MOST_LIST_BYTES:
            raise DataError(f"{show_url(url)} is not a list: over {MOST_LIST_BYTES >> 20} MiB")
        if length_of(response) not in (None, len(content)):
            raise ConnectionError(f"cut after {len(content):,} bytes")
        return content

    return request(url, take)


def read_start(url: str, size: int) -> bytes:
    """The first `size` bytes of a file, or all if it is shorter."""
    # A server without ranges sends all of it.
    return request(
        url, lambda response: response.read(size), headers=lambda: {"Range": f"bytes=0-{size - 1}"}
    )


def look_up(url: str, method: str = "HEAD") -> tuple[int | None, str]:
    """The length (None: not stated) and version (ETag or date, or empty) of a file.

    method: GET where the address is signed for that; the content is not read.
    """
    return request(url, lambda found: (length_of(found), version_of(found)), method=method)


def is_gone(error: DataError) -> bool:
    """True if an error of a request means that the server has no such file."""
    cause = error.__cause__
    return isinstance(cause, urllib.error.HTTPError) and cause.code in _GONE


def request(
    url: str,
    take: Callable[[Response], Result],
    *,
    method: str = "GET",
    headers: Callable[[], dict[str, str]] = dict,
    fetched: Callable[[], int] = lambda: 0,
) -> Result:
    """What `take` makes of an answer, after as many attempts and pauses as it takes.

    take: raises OSError for an answer that ends early; headers: of the next attempt; fetched: bytes
    that there are by now, as a transfer that gets on is not given up. Raises DataError for what
    another attempt does not change, and after too many failures in a row.
    """
    failures = best = 0
    is_reached = False
    require_network(show_url(url))
    while True:
        try:
            with _OPENER.open(_request(url, method, headers()), timeout=_SILENCE_SECONDS) as found:
                return take(found)
        except (OSError, http.client.HTTPException, ValueError) as error:
            # the errno of TLS's own errors is none of the system's
            code = error.errno if isinstance(error, OSError) else None
            if code in OF_THE_DISK and not isinstance(error, ssl.SSLError):
                raise
            why, wish = _failure(url, error)
            if fetched() - best > _LEAST_BYTES:
                failures, best = 0, fetched()
            failures += 1
            is_reached |= bool(best) or type(error) is not urllib.error.URLError
            if wish is None or failures >= (_ATTEMPTS if is_reached else _FIRST_ATTEMPTS):
                again = "check the address" if wish is None else "run the same command again"
                raise DataError(f"{why}; {again}") from error
            pause = min(max(2.0 ** (failures - 1), wish), _LONGEST_PAUSE_SECONDS)
            if failures > 1:
                line = one_line(f"{why}; next attempt in {pause:.0f} s")
                print(line, file=sys.stderr, flush=True)
            sleep(pause)


def _request(url: str, method: str, headers: dict[str, str]) -> urllib.request.Request:
    """Raises ValueError if the URL is not the address of a server."""
    parts = urlsplit(quote(url, safe=_AS_IT_IS))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it is not an address that begins with http:// or https://")
    login, at, place = parts.netloc.rpartition("@")
    address = urlunsplit((parts.scheme, place, parts.path, parts.query, ""))
    # Uncompressed, or lengths and ranges would be those of the compressed bytes.
    about = {"User-Agent": user_agent(), "Accept-Encoding": "identity"} | headers
    found = urllib.request.Request(address, headers=about, method=method)
    if at:  # not sent to where a redirect leads
        secret = base64.b64encode(unquote(login).encode()).decode()
        found.add_unredirected_header("Authorization", f"Basic {secret}")
    return found


def _failure(url: str, error: Exception) -> tuple[str, float | None]:
    """What happened, and the seconds that a server asks to wait; None if it is final."""
    why = " ".join(str(getattr(error, "reason", None) or error).split()) or type(error).__name__
    wish: float | None = 0.0
    if isinstance(error, ValueError | http.client.InvalidURL):  # the URL's, or a redirect's
        wish = None
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        why = f"HTTP {error.code}: {why}"
        after = error.headers.get("Retry-After", "")  # 429 and 503 ask for it
        wish = float(after) if after.isdecimal() else 0.0
        wish = wish if error.code >= 500 or error.code in _BUSY else None
    return f"{show_url(url)} cannot be fetched ({show_text(why, url)})", wish


def version_of(response: Response) -> str:
    """The version that If-Range takes: a strong ETag, or a date."""
    tag = response.headers.get("ETag", "")
    # W/"..." is weak: its bytes may differ.
    return tag if tag.startswith('"') else response.headers.get("Last-Modified", "")


def length_of(response: Response) -> int | None:
    """The length that an answer states; None if it cannot be a file's."""
    text = response.headers.get("Content-Length", "")
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

"""Files at URLs of any scheme that fsspec supports (s3://, https://, hdfs://), copied to disk once.

A file goes to `downloads/<mark>/<its name>`; the mark is a fingerprint of its URL, size and
version as the service reports it. A file appears only when it is complete; a restart copies the
missing ones.

Files are not read in place, because each is read several times (format detection, the tokenizer's
sample, byte ranges by many workers, every resume), must be the same each time, and must be as fast
as a disk. A copy gives all that, for every format.

Credentials in a URL (user and password, a signature in the query) are used only for the fetch;
they never appear in messages, labels, ids or the manifest.
"""

from __future__ import annotations

import asyncio
import errno
import posixpath
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any

from pipeline.base.errors import ConfigError, DataError
from pipeline.base.files import one_at_a_time, remove_temporaries, whole_file
from pipeline.base.progress import tracked
from pipeline.base.shown_urls import object_url, show_text, show_url
from pipeline.base.skipped_names import SkippedNames, is_skipped_path
from pipeline.config.settings import fingerprint
from pipeline.remote.retries import TryAgainError, patiently

_AT_ONCE = 4
"""Files copied concurrently, if the service's package supports it."""
_ATTEMPTS = 3
"""Attempts at a copy; the packages of services make several of their own."""
_SILENCE_SECONDS = 60
"""Timeout for a server that sends nothing."""
_MOST_SAID = 200
"""Characters shown of a service's message."""
# MEMBER= names a group's member; "::" chains file systems, as in simplecache::s3://
_URL = re.compile(r"([\w-]+=)?((?:[a-zA-Z]\w*::)*[a-zA-Z][\w+.-]*://.+)", re.DOTALL)
_VERSIONS = (
    "ETag", "etag", "md5Hash", "Content-MD5", "Digest", "checksum", "generation", "VersionId",
    "LastModified", "Last-Modified", "last_modified", "modificationTime", "mtime", "updated",
)  # fmt: skip
"""Fields in which services report a file's version, most reliable first."""
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file at a URL."""

    system: Any
    """fsspec's file system."""
    path: str
    """The path in the form `system` expects; may contain a signature."""
    shown: str
    """Its name in messages, without secrets."""
    label: str
    """Path relative to the given directory, or the file's name."""
    size: int
    """Bytes; -1 if the service does not report it."""
    version: str

    def target(self, downloads: Path) -> Path:
        """The path of its copy, whether or not it exists."""
        mark = fingerprint({"url": self.shown, "size": self.size, "version": self.version})
        return downloads / mark / posixpath.basename(self.label)


def is_url(given: str) -> bool:
    """True if an input is a URL or MEMBER=URL, not a path."""
    return bool(_URL.fullmatch(given))


def local_inputs(inputs: list[str], downloads: Path, *, copying: bool = True) -> list[str]:
    """Return `inputs` with each URL replaced by the path of its copy.

    A directory's URL becomes a local directory with the same names. copying: if false, a missing
    file is a ConfigError that says what would be copied. Raises ConfigError if a package is
    missing, DataError if a service refuses or cannot be reached.
    """
    listed = {
        given: (found[1] or "", *_listed(found[2]))
        for given in inputs
        if (found := _URL.fullmatch(given))
    }
    if not listed:
        return inputs
    files = list(
        {file.target(downloads): file for _, some, _ in listed.values() for file in some}.values()
    )
    missing = [file for file in files if not file.target(downloads).exists()]
    if missing:
        sizes = sum(max(file.size, 0) for file in missing)
        what = f"{len(missing):,} of {len(files):,} files at URLs, {sizes / 1e6:,.1f} MB"
        if not copying:
            raise ConfigError(f"{what}, are not in {downloads} yet; run once without --dry-run")
        print(f"fetching {what}, to {downloads}", flush=True)
        _fetch(missing, downloads)
    paths = []
    for given in inputs:
        if given not in listed:
            paths.append(given)
            continue
        member, some, is_directory = listed[given]
        places = [_tree(some, downloads)] if is_directory else [f.target(downloads) for f in some]
        paths += [f"{member}{place}" for place in places]
    return paths


def _listed(url: str) -> tuple[list[RemoteFile], bool]:
    # One attempt: what is not there and what cannot be reached have the same errors.
    return patiently(show_url(url), partial(_files, url), attempts=1)


def _files(url: str) -> tuple[list[RemoteFile], bool]:
    """The files at a URL, sorted by path, and whether it is a directory."""
    with _reporting(show_url(url), url):
        system, path = _file_system(url)
        is_web = url.startswith(("http://", "https://"))  # where ? begins a query
        if "*" in path or "[" in path or ("?" in path and not is_web):
            found, base = system.glob(path, detail=True), ""
        else:
            about = system.info(path)
            if about["type"] != "directory":
                return [_file(system, path, about, "")], False
            found, base = system.find(path, detail=True), path
    files = [
        _file(system, name, about, base)
        for name, about in sorted(found.items())
        # As in a directory on disk: empty files are skipped.
        if about["type"] == "file" and not (base and about.get("size") == 0)
    ]
    # So are names that are skipped there; a README.md may describe a dataset.
    skipped = SkippedNames()
    skipped.add(file.label for file in files if _is_skipped(file.label, bool(base)))
    skipped.tell(show_url(url))
    files = [file for file in files if not _is_skipped(file.label, bool(base))]
    if not files:
        raise DataError(f"{show_url(url)} has no files; check the URL")
    return files, bool(base)


def _is_skipped(label: str, in_folder: bool) -> bool:
    if not in_folder:  # a glob names files, but no hidden ones, as on disk
        return label.startswith(".")
    return is_skipped_path(label) and posixpath.basename(label) != "README.md"


def _file(system: Any, path: str, about: dict[str, Any], base: str) -> RemoteFile:
    version = next((str(about[name]) for name in _VERSIONS if about.get(name)), "")
    size = about.get("size")
    return RemoteFile(
        system=system,
        path=path,
        shown=show_url(str(system.unstrip_protocol(path))),
        label=_label(path, base),
        size=-1 if size is None else int(size),
        # If the service reports no version, the query may hold one; a new signature is not one.
        version=version or fingerprint({"path": object_url(path)}),
    )


def _label(path: str, base: str) -> str:
    name, folder = show_url(path), show_url(base)
    if not base:
        return posixpath.basename(name)
    # a name with @ below a URL with a password hides it all
    return posixpath.relpath(*((name, folder) if name.startswith(folder) else (path, base)))


def _file_system(url: str) -> tuple[Any, str]:
    """fsspec's file system for a URL, and the path in it."""
    try:
        import fsspec

        options: dict[str, Any] = {}
        if url.startswith(("http://", "https://")):
            import aiohttp

            # aiohttp's default of five minutes per file is too short for large ones.
            timeout = aiohttp.ClientTimeout(
                total=None, sock_connect=_SILENCE_SECONDS, sock_read=_SILENCE_SECONDS
            )
            options["client_kwargs"] = {
                "timeout": timeout,
                "trace_configs": [_secure_redirects()],
                # Unpacked, an encoded answer could be of any size; files are read compressed.
                "auto_decompress": False,
            }
        system, path = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        raise ConfigError(
            f"{show_url(url)}: {show_text(str(error), url)}; pip install '.[s3]' for s3:// and "
            "https://, or the package that fsspec names for another scheme"
        ) from error
    except ValueError as error:
        raise ConfigError(
            f"{show_url(url)} is not a URL that fsspec supports: {show_text(str(error), url)}"
        ) from error
    except OSError as error:
        if not re.search("libjvm|libhdfs", str(error)):
            raise
        raise ConfigError(
            f"{show_url(url)}: hdfs:// needs Java and Hadoop; set JAVA_HOME, HADOOP_HOME and "
            "CLASSPATH, or copy the files here with `hdfs dfs -get`"
        ) from error
    return system, str(path)


@cache
def _secure_redirects() -> Any:
    """Lets aiohttp refuse a redirect from https to http, as `http` does. One
    object for all URLs, as fsspec's file systems are the same only if their options are."""
    import aiohttp

    async def refuse(_session: Any, _context: Any, redirect: Any) -> None:
        answer = redirect.response
        target = answer.headers.get("Location", "").strip().lower()
        if answer.url.scheme == "https" and target.startswith("http:"):
            raise aiohttp.ClientError("redirected from https to http, which is not followed")

    found = aiohttp.TraceConfig()
    found.on_request_redirect.append(refuse)
    return found


def _fetch(files: list[RemoteFile], downloads: Path) -> None:
    downloads.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(downloads / ".lock"):
        # Again, under the lock: another process may have copied some.
        missing = [file for file in files if not file.target(downloads).exists()]
        batches = [
            same[start : start + _AT_ONCE]
            # One call copies several files of one file system only.
            for same in (list(group) for _, group in groupby(missing, lambda file: id(file.system)))
            for start in range(0, len(same), _AT_ONCE)
        ]
        for batch in tracked(batches, "fetching", f"batches of {_AT_ONCE} files"):
            for file in batch:
                file.target(downloads).parent.mkdir(exist_ok=True)
                remove_temporaries(file.target(downloads).parent)
            with ExitStack() as until_whole:
                places = [
                    until_whole.enter_context(whole_file(file.target(downloads))) for file in batch
                ]
                _copy(batch, places)


def _copy(files: list[RemoteFile], places: list[Path]) -> None:
    names = files[0].shown + (f" (or one of {len(files)} with it)" if len(files) > 1 else "")
    system = files[0].system

    def attempt() -> None:
        with _reporting(names, *(str(system.unstrip_protocol(f.path)) for f in files)):
            system.get([file.path for file in files], [str(place) for place in places])

    patiently(names, attempt, attempts=_ATTEMPTS)
    for file, place in zip(files, places, strict=True):
        size = place.stat().st_size
        if file.size not in (-1, size):
            raise DataError(
                f"{file.shown}: got {size:,} of {file.size:,} bytes; run the same command again"
            )


def _tree(files: list[RemoteFile], downloads: Path) -> Path:
    """A directory of links to the copies, with the names they have below their URL."""
    targets = {file.label: file.target(downloads) for file in files}
    tree = downloads / fingerprint({label: path.parent.name for label, path in targets.items()})
    for label, path in targets.items():
        link = tree / label
        if not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)  # it leads to a copy that was removed
            link.symlink_to(path.absolute())
    return tree


@contextmanager
def _reporting(shown: str, *urls: str) -> Iterator[None]:
    """Turn errors of services and networks into a DataError, or a TryAgainError if another attempt
    may do, of one line without secrets of `urls`."""
    try:
        yield
    except _failures() as error:
        if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
            raise
        raise _failure(shown, error, urls) from error


def _failures() -> tuple[type[BaseException], ...]:
    """Errors of services; a package that is not loaded cannot raise any."""
    known = (
        ("botocore.exceptions", "BotoCoreError"), ("botocore.exceptions", "ClientError"),
        ("aiohttp", "ClientError"), ("gcsfs.retry", "HttpError"),
        ("google.auth.exceptions", "GoogleAuthError"), ("azure.core.exceptions", "AzureError"),
    )  # fmt: skip
    loaded = (getattr(sys.modules[name], kind) for name, kind in known if name in sys.modules)
    return (OSError, asyncio.TimeoutError, *loaded)


def _failure(shown: str, error: BaseException, urls: Sequence[str]) -> Exception:
    cause = error
    if isinstance(error, FileNotFoundError) and error.__cause__ is not None:
        cause = error.__cause__  # fsspec reports an unreachable host as a missing file
    status = getattr(cause, "status", 0)
    if isinstance(cause, FileNotFoundError) or status == 404:
        return DataError(f"{shown} does not exist; check the URL")
    if isinstance(cause, PermissionError) or status in (401, 403):
        return DataError(
            f"{shown} is refused; set the credentials where its service looks for them"
        )
    said = str(cause)
    for url in urls:
        said = show_text(said, url)
    said = " ".join(said.split()) or type(cause).__name__
    return TryAgainError(said if len(said) <= _MOST_SAID else f"{said[:_MOST_SAID]} ...")

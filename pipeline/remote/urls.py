"""Files at URLs: http(s):// by `http`, other schemes (s3://, hdfs://) by fsspec; copied once.

Files are not read in place, because each is read several times (format detection, the tokenizer's
sample, byte ranges by many workers, every resume), must be the same each time, and must be as fast
as a disk. A copy gives all that, for every format.

The files of a URL go to `downloads/<mark>/<their names>`; the mark is a fingerprint of the URL and
of their names, sizes and versions as the service reports them. A file appears only when it is
complete; a restart copies the missing ones. Jobs of Slurm read the copies that were made last.

Credentials in a URL (user and password, a signature in the query) are used only for the fetch;
they never appear in messages, labels, ids or the manifest.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.base.errors import ConfigError, DataError, PipelineError
from pipeline.base.files import (
    make_directory,
    one_at_a_time,
    remove_temporaries,
    whole_file,
    write_whole,
)
from pipeline.base.progress import tracked
from pipeline.base.shown_urls import object_url, show_text, show_url
from pipeline.base.skipped_names import SkippedNames, is_skipped_path
from pipeline.config.settings import fingerprint
from pipeline.execution.threads import on_threads
from pipeline.remote.http import (
    OF_THE_DISK,
    download,
    is_network_asked,
    look_up,
    require_network,
)

_AT_ONCE = 4
"""Files copied concurrently."""
_MOST_SAID = 200
"""Characters shown of a service's message."""
# MEMBER= names a group's member; "::" chains file systems, as in simplecache::s3://
_URL = re.compile(r"([\w-]+=)?((?:[a-zA-Z]\w*::)*[a-zA-Z][\w+.-]*://.+)", re.DOTALL)


class RemoteFile(NamedTuple):
    """A file at a URL."""

    path: str
    """The URL, or the path in its file system; may contain a signature."""
    label: str
    """Path relative to the given directory, or the file's name."""
    size: int | None
    """Bytes; None if the service does not report it."""
    version: str


def is_url(given: str) -> bool:
    """True if an input is a URL or MEMBER=URL, not a path."""
    return bool(_URL.fullmatch(given))


def local_inputs(inputs: list[str], downloads: Path, *, copying: bool = True) -> list[str]:
    """Return `inputs` with each URL replaced by the path of its copy.

    A directory's URL becomes a local directory with the same names. copying: if false, a missing
    file is a ConfigError that says what would be copied. Raises ConfigError if a package is
    missing, DataError if a service refuses or cannot be reached.
    """
    paths = []
    for given in inputs:
        if not (found := _URL.fullmatch(given)):
            paths.append(given)
            continue
        member, url = found[1] or "", found[2]
        # Names that signatures do not change.
        known = downloads / f"{fingerprint({'url': object_url(url)})}.json"
        if is_network_asked() or not known.exists():
            names = _copied(url, downloads, copying)
            if copying:
                write_whole(known, json.dumps(names).encode())
        else:
            names = json.loads(known.read_bytes())
        paths += [f"{member}{downloads / name}" for name in names]
    return paths


def _copied(url: str, downloads: Path, copying: bool) -> list[str]:
    """Paths of the copies, or of their directory, below the downloads."""
    require_network(show_url(url))
    with _reporting(url):
        system, files, is_directory = _listed(url)
    mark = fingerprint({"url": show_url(url).rstrip("/"), "files": [file[1:] for file in files]})
    targets = {file: downloads / mark / file.label for file in files}
    if not all(target.exists() for target in targets.values()):
        _copy(url, system, targets, downloads, copying)
    return [mark] if is_directory else [f"{mark}/{file.label}" for file in files]


def _copy(
    url: str, system: Any, targets: dict[RemoteFile, Path], downloads: Path, copying: bool
) -> None:
    """Copy the files whose targets are missing. Raises ConfigError instead if not `copying`."""

    def copy(file: RemoteFile) -> None:
        target = targets[file]
        if system is None:
            download(file.path, target, file.size)
            return
        make_directory(target.parent)
        # the service's errors are OSErrors, too, and none of the disk
        with whole_file(target) as temporary, _reporting(url):
            system.get_file(file.path, str(temporary))
            if file.size not in (None, size := temporary.stat().st_size):
                raise DataError(f"{show_url(url)}: got {size:,} of {file.size:,} bytes")

    missing = [file for file, target in targets.items() if not target.exists()]
    size = sum(file.size or 0 for file in missing) / 1e6
    what = f"{len(missing):,} of {len(targets):,} files at {show_url(url)}, {size:,.1f} MB"
    if not copying:
        raise ConfigError(f"{what}, are not in {downloads} yet; run once without --dry-run")
    make_directory(downloads)
    with one_at_a_time(downloads / ".lock"):
        # Again, under the lock: another process may have copied some.
        missing = [file for file in missing if not targets[file].exists()]
        print(f"fetching {what}, to {downloads}", flush=True)
        for folder in {targets[file].parent for file in missing}:
            remove_temporaries(folder)
        for _ in tracked(on_threads(copy, missing, _AT_ONCE), "fetching", "files", len(missing)):
            pass


def _listed(url: str) -> tuple[Any, list[RemoteFile], bool]:
    """The file system, the files at a URL, sorted by path, and whether it is a directory."""
    if url.startswith(("http://", "https://")):
        size, version = look_up(url, "GET")
        name = posixpath.basename(show_url(url))
        # A query may hold a version; a new signature is not one.
        version = version or fingerprint({"path": object_url(url)})
        return None, [RemoteFile(url, name, size, version)], False
    import fsspec

    system, path = fsspec.core.url_to_fs(url)
    is_glob = re.search(r"[*?[]", path)
    is_directory = not is_glob and system.info(path)["type"] == "directory"
    if is_directory:
        found = system.find(path, detail=True)
    else:
        found = system.glob(path, detail=True) if is_glob else {path: system.info(path)}
    base = posixpath.dirname(path[: is_glob.start()] if is_glob else path)
    files = [
        RemoteFile(
            name,
            posixpath.relpath(name, path if is_directory else base),
            about.get("size"),
            system.ukey(name),
        )
        for name, about in sorted(found.items())
        # As in a directory on disk: empty files are skipped.
        if about["type"] == "file" and (about.get("size") != 0 or not is_directory)
    ]
    # So are names that are skipped there; a README.md may describe a dataset.
    skipped = SkippedNames()
    skipped.add(file.label for file in files if _is_skipped(file.label, is_directory))
    skipped.tell(show_url(url))
    files = [file for file in files if not _is_skipped(file.label, is_directory)]
    if not files:
        raise DataError(f"{show_url(url)} has no files; check the URL")
    if any(".." in file.label.split("/") or file.label.startswith("/") for file in files):
        raise DataError(
            f"{show_url(url)} has names with '..', which leave the downloads; rename them"
        )
    return system, files, is_directory


def _is_skipped(label: str, in_directory: bool) -> bool:
    if not in_directory:  # a glob names files, but no hidden ones, as on disk
        return posixpath.basename(label).startswith(".")
    return is_skipped_path(label) and posixpath.basename(label) != "README.md"


@contextmanager
def _reporting(url: str) -> Iterator[None]:
    """Turn errors of services and networks into one line without secrets."""
    shown = show_url(url)
    try:
        yield
    except (PipelineError, TypeError, AttributeError):
        raise
    except Exception as error:  # each service's package has errors of its own
        if isinstance(error, OSError) and error.errno in OF_THE_DISK:
            raise
        cause = error.__cause__ or error if isinstance(error, FileNotFoundError) else error
        said = " ".join(show_text(str(cause), url).split()) or type(cause).__name__
        said = said if len(said) <= _MOST_SAID else f"{said[:_MOST_SAID]} ..."
        if isinstance(error, ImportError):
            raise ConfigError(
                f"{shown}: {said}; pip install '.[s3]' for s3://, or the package that fsspec names"
            ) from error
        if isinstance(error, ValueError):
            raise ConfigError(f"{shown} is not a URL that fsspec supports: {said}") from error
        if isinstance(cause, FileNotFoundError):
            raise DataError(f"{shown} does not exist; check the URL") from error
        if isinstance(cause, PermissionError):
            said = "refused; set the credentials where its service looks for them"
        raise DataError(f"{shown} cannot be fetched ({said})") from error

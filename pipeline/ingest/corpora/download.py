"""The Hub's copy of a named corpus that has no `--input`: fetched once, then read offline.

The copy is checked against the recipe first, so that an unsuitable one fails before the download.
The files of a pinned commit are compared with the Hub's list. Their directory is named for the
revision and marked once all of them are there, so an interrupted fetch resumes, compute nodes
without a network find it with the same command, and each revision has its own directory.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from pipeline.base.errors import ConfigError, DataError
from pipeline.base.files import make_directory, one_at_a_time, write_whole
from pipeline.config.data_settings import DataSettings
from pipeline.ingest.corpora.catalogue import CORPORA, GROUPS, Hub
from pipeline.ingest.corpora.groups import member_inputs, require_members, require_size
from pipeline.ingest.corpora.suitability import require_fit_of_hub
from pipeline.remote.hub import MARKER, Repository, download, list_files


def download_missing(
    corpus: str,
    inputs: list[str],
    downloads: Path,
    data: DataSettings,
    *,
    revision: str = "",
    allow_short: bool = False,
    fetching: bool = False,
    published: Collection[str] = (),
) -> list[str]:
    """Return `inputs`, plus the directory of the Hub's copy for each corpus that has no files.

    downloads: parent of these directories; revision: overrides the catalogue's; fetching: download
    the missing members of a group even if other members are given; published: corpora that have
    their files from their publishers.
    """
    _check(corpus, [*inputs, *published], revision, fetching)
    if corpus in GROUPS:
        return _group(corpus, inputs, downloads, data, allow_short, fetching, published)
    hub = CORPORA[corpus].hub if corpus in CORPORA else None
    if inputs or hub is None or corpus in published:
        return inputs
    hub = replace(hub, revision=revision or hub.revision)
    require_fit_of_hub(corpus, hub, data)
    return [str(fetch_corpus(corpus, hub, downloads))]


def _check(corpus: str, inputs: list[str], revision: str, fetching: bool) -> None:
    """Raises ConfigError if an option would have no effect."""
    option = f"{corpus}@{revision}" if revision else "--fetch" if fetching else ""
    names = [*CORPORA] if revision else [*CORPORA, *GROUPS]
    if option and corpus not in names:
        raise ConfigError(f"{option}: {corpus} is not on the Hub; {', '.join(names)} are")
    if option and inputs and corpus in CORPORA:
        raise ConfigError(f"{option} applies to the Hub's copy; drop it, or --input")


def _group(
    corpus: str,
    inputs: list[str],
    downloads: Path,
    data: DataSettings,
    allow_short: bool,
    fetching: bool,
    published: Collection[str],
) -> list[str]:
    files = member_inputs(corpus, GROUPS[corpus], inputs)
    hubs = {
        member: hub
        for member, paths in files.items()
        if not (paths or member in published)
        and (hub := CORPORA[member].hub) is not None
        # A forgotten member must not start a download.
        and (fetching or not inputs or is_fetched(fetched_directory(downloads, member, hub)))
    }
    # All members before the first download: the last may be unsuitable.
    for member, hub in hubs.items():
        require_fit_of_hub(member, hub, data)
    # By the stated sizes, before hours of downloading; `prepare` counts the text again.
    if not inputs and not published and not allow_short:
        require_size(corpus, {member: hub.text_bytes for member, hub in hubs.items()}, "on the Hub")
    for member, hub in hubs.items():
        files[member] = [str(fetch_corpus(member, hub, downloads))]
    require_members(corpus, files, published)
    return [f"{member}={path}" for member, paths in files.items() for path in paths]


def fetched_directory(downloads: Path, corpus: str, hub: Hub) -> Path:
    """The directory of a corpus at this revision, fetched or not."""
    return downloads / f"{corpus}-{hub.revision[:12]}"


def is_fetched(directory: Path) -> bool:
    """True if the fetch is complete."""
    return (directory / MARKER).exists()


def fetch_corpus(corpus: str, hub: Hub, downloads: Path) -> Path:
    """Return the directory with all of `hub`'s files; fetches them if they are missing.

    Raises ConfigError if the package huggingface_hub is missing or the Hub refuses, DataError if it
    cannot be reached or a file differs from the Hub's list.
    """
    directory = fetched_directory(downloads, corpus, hub)
    if not is_fetched(directory):
        repository = Repository(
            kind="dataset", name=hub.id, revision=hub.revision, shown=f"{corpus} ({hub.id})",
            instead="with --fetch where there is a network, or give files with --input PATH...",
        )  # fmt: skip
        commit, files = list_files(repository, hub.files)
        make_directory(directory)
        with one_at_a_time(directory / ".lock"):
            if is_fetched(directory):  # by a process that had the lock before
                return directory
            listed = {directory / file.path for file in files}
            here = (path for path in directory.rglob("*") if path.is_file())
            if others := [
                path for path in here if path.suffix == ".parquet" and path not in listed
            ]:
                raise DataError(f"{others[0]} is not in the Hub's list; remove {directory}")
            size = sum(file.size for file in files) / 1e9
            print(f"{corpus}: fetching {hub.id}, {size:.1f} GB, to {directory}", flush=True)
            download(repository, commit, files, directory)
            shutil.rmtree(directory / ".cache", ignore_errors=True)  # notes of huggingface_hub
            # Last: it says that all files are here.
            write_whole(directory / MARKER, json.dumps({"id": hub.id, "commit": commit}).encode())
    print(f"{corpus}: {hub.id} at {hub.revision[:12]}, in {directory}", flush=True)
    return directory

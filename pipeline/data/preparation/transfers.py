"""What is to be fetched of published files, and `--fetch`."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from pipeline.base.command_line import data_root, downloads
from pipeline.base.files import size_of
from pipeline.base.shown_urls import show_url
from pipeline.config.data_settings import DataSettings
from pipeline.data.preparation.corpus_files import list_published
from pipeline.execution.workers import local_executor
from pipeline.ingest.corpora.catalogue import GROUPS
from pipeline.ingest.corpora.download import download_missing
from pipeline.ingest.corpora.sources import keep_language
from pipeline.ingest.documents.records import FoundAs, Source
from pipeline.ingest.extraction.extract import not_extracted
from pipeline.remote.copies import (
    PublishedFile,
    fetch_all,
    is_here,
    passing_path,
    read_beginning,
)
from pipeline.remote.http import ask_for_network
from pipeline.remote.urls import local_inputs

_PLACES = 4
"""Files of a corpus that are looked at."""
_FETCHED_BYTES = 4 << 20
"""Bytes of each that are fetched for an estimate of its documents."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """The published files of a corpus, by what is to be done with them."""

    corpus: str
    files: list[Source]
    here: list[Source]
    """Files in the downloads that are not extracted."""
    missing: list[Source]
    """To be fetched."""

    @classmethod
    def of(cls, corpus: str, files: list[Source], documents: Path) -> Transfer:
        """documents: directory of extracted files."""
        found: dict[bool, list[Source]] = {True: [], False: []}
        for source in not_extracted(files, documents):
            found[is_here(_published(source))].append(source)
        return cls(corpus, files, here=found[True], missing=found[False])

    def describe(self) -> str:
        """Line with the number, size and source of the files."""
        done = len(self.files) - len(self.here) - len(self.missing)
        text = f"{self.corpus}: {_sizes(self.files)}, from {_host(self.files[0])}"
        there = [f"{done:,} are extracted"] * bool(done)
        there += [f"{len(self.here):,} are in {downloads()}"] * bool(self.here)
        if not self.missing:
            return f"{text}; {', '.join(there)}; nothing to fetch"
        file = _published(self.missing[0])
        there.append(f"{_sizes(self.missing)} to fetch, at most {file.connections} at a time")
        return f"{text}; {', '.join(there)}"

    def copied(self, workers: int) -> int:
        """Bytes of the copies that there are at a time."""
        return _bytes(_largest(self.missing, workers))

    def fetched_so_far(self) -> int:
        """Bytes of the copies of missing files that exist."""
        return sum(max(0, size_of(passing_path(_published(source)))) for source in self.missing)


def find_transfers(files: list[Source]) -> list[Transfer]:
    """The published ones among the files, by corpus."""
    found: dict[str, list[Source]] = {}
    for source in files:
        if source.published:
            found.setdefault(source.corpus, []).append(source)
    documents = data_root() / "documents"
    return [Transfer.of(corpus, its, documents) for corpus, its in found.items()]


def fetch_inputs(arguments: argparse.Namespace, data: DataSettings) -> None:
    """Copy what publishers list, what URLs name, or the Hub's copy, to the downloads.

    Copies that exist are kept; files that are extracted are not fetched again.
    """
    ask_for_network()
    published = list_published(arguments)
    files = [source for its in published.values() for source in its]
    if published:
        files = keep_language(files, arguments.language)
    number, count = arguments.part or (1, 1)
    for transfer in find_transfers(files):
        print(transfer.describe(), flush=True)
        share = {*transfer.files[number - 1 :: count]}  # of all, so that parts agree on it
        mine = [_published(source) for source in transfer.missing if source in share]
        if mine:
            fetch_all(mine, local_executor(mine[0].connections))
    inputs = local_inputs(arguments.input, downloads(), copying=not arguments.dry_run)
    if arguments.corpus in GROUPS or (inputs == arguments.input and not published):
        download_missing(
            arguments.corpus, inputs, downloads(), data, revision=arguments.revision,
            allow_short=arguments.allow_short, fetching=True, published=published,
        )  # fmt: skip


@contextmanager
def beginnings(files: list[Source]) -> Iterator[tuple[list[Source], dict[str, float]]]:
    """The beginnings of some of the published files, for estimates, and for each corpus how many
    times as large all its published files are."""
    found: list[Source] = []
    factors: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for transfer in find_transfers(files):
            heads = []
            for source in _some(transfer.files):
                head = read_beginning(_published(source), _FETCHED_BYTES)
                heads.append(_alone(source, head, folder))
            factors[transfer.corpus] = _bytes(transfer.files) / _bytes(heads)
            found += heads
        yield found, factors


def _alone(source: Source, head: bytes, folder: str) -> Source:
    """A file in `folder` of the beginning of a published one."""
    path = Path(folder, source.name)
    path.write_bytes(head)
    mtime_ns = path.stat().st_mtime_ns
    return replace(source, path=str(path), size=len(head), published=None, found=FoundAs(mtime_ns))


def _some(files: list[Source]) -> list[Source]:
    """Files at even distances."""
    places = (number * len(files) // _PLACES for number in range(_PLACES))
    return [files[place] for place in dict.fromkeys(places)]  # places of few files coincide


def _largest(files: list[Source], count: int) -> list[Source]:
    return sorted(files, key=lambda source: source.size)[-count:]


def _bytes(files: list[Source]) -> int:
    return sum(source.size for source in files)


def _sizes(files: list[Source]) -> str:
    return f"{len(files):,} file{'s' * (len(files) != 1)} of {_bytes(files) / 1e9:,.2f} GB"


def _host(source: Source) -> str:
    return urlsplit(show_url(_published(source).url)).netloc


def _published(source: Source) -> PublishedFile:
    assert source.published
    return source.published

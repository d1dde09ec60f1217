"""From the inputs that a command names to the files of its corpus, checked against the recipe."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from pipeline.command_line import downloads
from pipeline.config.run import DataSettings
from pipeline.data.corpora.catalogue import GROUPS
from pipeline.data.corpora.download import download_missing
from pipeline.data.corpora.groups import most_text, require_size
from pipeline.data.corpora.sources import (
    SAMPLE,
    corpus_sources,
    describe_corpus,
    describe_input,
    is_named,
    limit_sites,
)
from pipeline.data.corpora.suitability import require_fit
from pipeline.data.corpora.urls import local_inputs
from pipeline.data.documents.records import Source


@dataclass(frozen=True, slots=True)
class FoundCorpus:
    """A corpus or group, and its files as they were given."""

    corpus: str
    """Its name in directories of shards."""
    name: str
    """Its name in folders of tokenizers: that of its first member if the inputs are unnamed."""
    named: bool
    """Whether all files are of named corpora."""
    description: str
    """The corpora in words."""
    files: list[Source]
    """In an order that does not depend on the machine; nothing is extracted yet."""


def fetch_inputs(arguments: argparse.Namespace, data: DataSettings) -> None:
    """Copy what URLs name, or the Hub's copy, to the downloads; copies that exist are kept."""
    inputs = local_inputs(arguments.input, downloads(), copying=not arguments.dry_run)
    if inputs == arguments.input or arguments.corpus in GROUPS:
        download_missing(
            arguments.corpus, inputs, downloads(), data, revision=arguments.revision,
            allow_short=arguments.allow_short, fetching=True,
        )  # fmt: skip


def find_sources(
    arguments: argparse.Namespace,
    data: DataSettings,
    *,
    copying: bool = True,
    allow_short: bool = True,
) -> FoundCorpus:
    """The corpus that the command line names; missing copies of the Hub are downloaded.

    copying: copy files from URLs, otherwise raise ConfigError for files that have no copy yet;
    allow_short: take a group that has less text than stated. Raises ConfigError or DataError if the
    files do not exist or do not fit the recipe.
    """
    inputs = local_inputs(arguments.input, downloads(), copying=copying)
    inputs = download_missing(
        arguments.corpus, inputs, downloads(), data,
        revision=arguments.revision, allow_short=allow_short,
    )  # fmt: skip
    corpus, sources = corpus_sources(
        arguments.corpus, inputs, arguments.text_field, arguments.plain_text
    )
    sources = limit_sites(sources, arguments.pages_per_domain)
    print(f"input: {describe_input(sources)}", flush=True)
    require_fit(sources, data)
    if not allow_short:
        require_size(corpus, most_text(sources), "at most")
    named = is_named(arguments.corpus, inputs)
    keeps_name = named or arguments.corpus == SAMPLE
    return FoundCorpus(
        corpus=corpus,
        name=arguments.corpus if keeps_name else sources[0].corpus,
        named=named,
        description=describe_corpus(arguments.corpus, inputs, sources),
        files=sources,
    )

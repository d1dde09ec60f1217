"""A command's --corpus and --input -> the corpus's files, checked against the recipe."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from pipeline.command_line import downloads
from pipeline.config.data_settings import DataSettings
from pipeline.data.corpora.catalogue import GROUPS
from pipeline.data.corpora.download import download_missing
from pipeline.data.corpora.groups import most_text, require_size
from pipeline.data.corpora.sources import (
    SAMPLE,
    corpus_sources,
    describe_corpus,
    is_named,
    limit_sites,
    print_input,
)
from pipeline.data.corpora.suitability import require_fit
from pipeline.data.corpora.urls import local_inputs
from pipeline.data.documents.records import Source


@dataclass(frozen=True, slots=True)
class FoundCorpus:
    """A corpus or group and its input files."""

    corpus: str
    """Its name in directories of shards."""
    name: str
    """Its name in folders of tokenizers; the first member's if the corpus has no name."""
    named: bool
    """Whether all files belong to named corpora."""
    description: str
    """A description of the corpora."""
    files: list[Source]
    """In the same order on every machine; nothing is extracted yet."""


def fetch_inputs(arguments: argparse.Namespace, data: DataSettings) -> None:
    """Download the URLs of --input, or the Hub's copy; existing copies are kept."""
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
    """The corpus of a command line; missing copies from the Hub are downloaded.

    copying: copy files from URLs; otherwise raise ConfigError for files without a copy;
    allow_short: accept a group with less text than stated. Raises ConfigError or DataError if files
    do not exist or do not fit the recipe.
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
    print_input(sources, "input")
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

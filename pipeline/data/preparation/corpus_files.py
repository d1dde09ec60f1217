"""A command's --corpus and --input -> the corpus's files, checked against the recipe."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.base.command_line import downloads
from pipeline.config.data_settings import DataSettings
from pipeline.data.selection.filters import rewrite_texts
from pipeline.ingest.corpora.download import download_missing
from pipeline.ingest.corpora.groups import most_text, require_size
from pipeline.ingest.corpora.published_dumps import Selected, corpus_languages, require_place
from pipeline.ingest.corpora.sources import (
    SAMPLE,
    corpus_sources,
    describe_corpus,
    is_named,
    keep_language,
    print_input,
)
from pipeline.ingest.corpora.suitability import require_fit
from pipeline.ingest.documents.records import Source
from pipeline.remote.urls import local_inputs


@dataclass(frozen=True, slots=True)
class FoundCorpus:
    """A corpus or group and its input files."""

    corpus: str
    """Its name in directories of shards."""
    name: str
    """Its name in folders of tokenizers; the first member's if the corpus has no name."""
    named: bool
    """True if all files belong to named corpora."""
    description: str
    """A description of the corpora."""
    files: list[Source]
    """Input files in the same order on every machine; nothing is extracted yet."""
    languages: Mapping[str, str]
    """Language of each corpus of which it is known, see `corpus_languages`."""


def selected(arguments: argparse.Namespace) -> Selected:
    """The options of a command for publishers of corpora."""
    return Selected.named(arguments.dump, skip_missing=arguments.skip_missing)


def list_published(
    arguments: argparse.Namespace, *, recording: bool = True
) -> dict[str, list[Source]]:
    """The files of publishers that a command asks for, by corpus; recording: keep the lists."""
    chosen = selected(arguments)
    require_place(arguments.corpus, arguments.input, chosen.corpora())
    return chosen.sources(downloads(), recording=recording)


def find_sources(
    arguments: argparse.Namespace,
    data: DataSettings,
    *,
    copying: bool = True,
    allow_short: bool = True,
) -> FoundCorpus:
    """The corpus of a command line; missing copies from the Hub are downloaded.

    copying: copy files from URLs; otherwise raise ConfigError for files without a copy;
    allow_short: accept a group with less text than stated.
    Raises ConfigError or DataError if files do not exist or do not fit the recipe.
    """
    # an estimate leaves nothing on the disk, not even a list
    published = list_published(arguments, recording=copying)
    inputs = local_inputs(arguments.input, downloads(), copying=copying)
    inputs = download_missing(
        arguments.corpus, inputs, downloads(), data,
        revision=arguments.revision, allow_short=allow_short, published=published,
    )  # fmt: skip
    corpus, sources = corpus_sources(
        arguments.corpus, inputs, arguments.text_field, arguments.plain_text, published,
        arguments.by_folder, bool(arguments.map),
    )  # fmt: skip
    sources = keep_language(sources, arguments.language)
    sources = rewrite_texts(sources, arguments.map, arguments.filter, arguments.exclude)
    print_input(sources, "input")
    require_fit(sources, data)
    if not allow_short:
        require_size(corpus, most_text(sources), "at most")
    named = not arguments.by_folder and is_named(arguments.corpus, inputs, published)
    keeps_name = named or arguments.by_folder or arguments.corpus == SAMPLE
    return FoundCorpus(
        corpus=corpus,
        name=arguments.corpus if keeps_name else sources[0].corpus,
        named=named,
        description=describe_corpus(arguments.corpus, named, sources),
        files=sources,
        languages=corpus_languages(sources),
    )

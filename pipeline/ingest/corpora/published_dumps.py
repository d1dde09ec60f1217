"""`--dump`: corpora whose files are found in the lists of their publishers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from resiliparse.parse.lang import supported_langs

from pipeline.base.errors import ConfigError
from pipeline.ingest.corpora.catalogue import CORPORA, GROUPS
from pipeline.ingest.corpora.common_crawl import LANGUAGE, list_months, parse_months
from pipeline.ingest.corpora.wikimedia import list_dump
from pipeline.ingest.documents.records import Source
from pipeline.ingest.wikitext.names import LANGUAGES
from pipeline.remote.copies import PublishedFile

NEWS, WIKIPEDIA = "cc-news", "wikipedia"
ANY_LANGUAGE = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """The publishers' corpora that a command asks for; empty strings for none."""

    months: str = ""
    """Months as `parse_months` takes them."""
    dump: str = ""
    """A dump as `list_dump` takes it."""
    skip_missing: bool = False
    """True if files of months that are listed and do not exist are skipped."""

    @classmethod
    def named(cls, words: Sequence[str], *, skip_missing: bool = False) -> Selected:
        """words: of --dump: months, or a wiki's dump."""
        months = ",".join(word for word in words if word[:1].isdigit())
        dump = " ".join(word for word in words if not word[:1].isdigit())  # one: `list_dump`
        return cls(months=months, dump=dump, skip_missing=skip_missing)

    def corpora(self) -> list[str]:
        """Names of the corpora."""
        return [name for name, given in ((NEWS, self.months), (WIKIPEDIA, self.dump)) if given]

    def sources(self, downloads: Path, *, recording: bool = True) -> dict[str, list[Source]]:
        """The files of each corpus, from lists that are kept in `downloads` if `recording`."""
        if self.skip_missing and not self.months:
            raise ConfigError("--skip-missing is for months of --dump; omit it")
        files: dict[str, list[PublishedFile]] = {}
        if self.months:
            files[NEWS] = list_months(
                parse_months(self.months),
                downloads,
                skip_missing=self.skip_missing,
                recording=recording,
            )
        if self.dump:
            files[WIKIPEDIA] = list_dump(self.dump, downloads, recording=recording)
        return {name: [_source(name, file) for file in its] for name, its in files.items()}


def require_place(corpus: str, inputs: list[str], chosen: list[str]) -> None:
    """Raises ConfigError if a chosen corpus is not of the one, or the group, that is prepared.

    corpus, inputs: as for `corpus_sources`; chosen: as `Selected.corpora` returns them.
    """
    for name in chosen:
        members = GROUPS[corpus].members if corpus in GROUPS else [*CORPORA]
        if corpus == "sample" or (corpus in CORPORA and corpus != name) or name not in members:
            raise ConfigError(f"--dump gives files of {name}, not of {corpus}; omit it")
        if corpus == name and inputs:
            raise ConfigError(f"--dump and --input both give files of {name}; give one")


def chosen_language(given: str, source: Source) -> str:
    """The language of the pages of a WARC file that are kept; empty: any.

    given: a code, `any`, or empty: English of the months of CC-NEWS, else any. Raises ConfigError
    for an unknown one.
    """
    if given and given != ANY_LANGUAGE and given not in supported_langs():
        raise ConfigError(
            f"--language {given}: give a two-letter code such as en, or {ANY_LANGUAGE}"
        )
    if not given:
        return LANGUAGE if source.published else ""
    return "" if given == ANY_LANGUAGE else given


def corpus_languages(sources: Iterable[Source]) -> dict[str, str]:
    """The language of each corpus whose files are pages of one language, or of one wiki's dump."""
    chosen: dict[str, set[str]] = {}
    for source in sources:
        language = source.page_language
        if source.published and source.format == "mediawiki":
            code = source.published.path.partition("wiki")[0].replace("_", "-")
            # not of commonswiki; "simple" is a wiki, no code
            language = code if code in LANGUAGES and code != "simple" else ""
        chosen.setdefault(source.corpus, set()).add(language)
    codes = {corpus: found.pop() for corpus, found in chosen.items() if len(found) == 1}
    return {corpus: code for corpus, code in codes.items() if code}


def _source(corpus: str, file: PublishedFile) -> Source:
    return Source(
        corpus=corpus,
        path=str(file.place),
        name=file.place.name,
        size=file.size,
        format="warc" if corpus == NEWS else "mediawiki",
        # As published: there may be no file to sniff.
        compression="gz" if corpus == NEWS else "bz2",
        text_field="",
        plain_text=CORPORA[corpus].plain_text,
        licence=CORPORA[corpus].licence,
        published=file,
    )

"""`--months` and `--dump`: corpora whose files are found in the lists of their publishers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from resiliparse.parse.lang import supported_langs

from pipeline.base.errors import ConfigError
from pipeline.base.shown_urls import show_text, show_url
from pipeline.ingest.corpora.catalogue import CORPORA, GROUPS
from pipeline.ingest.corpora.common_crawl import COMMON_CRAWL, LANGUAGE, list_months, parse_months
from pipeline.ingest.corpora.wikimedia import WIKIMEDIA, list_dump
from pipeline.ingest.documents.records import Source
from pipeline.ingest.wikitext.names import LANGUAGES
from pipeline.remote.http import encoded_url
from pipeline.remote.kept_lists import Keeping, PublishedFile

NEWS, WIKIPEDIA = "cc-news", "wikipedia"
ADDRESSES = {NEWS: COMMON_CRAWL, WIKIPEDIA: WIKIMEDIA}
ANY_LANGUAGE = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """The publishers' corpora that a command asks for; empty strings for none."""

    months: str = ""
    """Months as `parse_months` takes them."""
    dump: str = ""
    """A dump as `list_dump` takes it."""
    mirrors: Sequence[str] = ()
    """Addresses in place of the publishers': URL, or CORPUS=URL."""
    is_kept: bool = False
    """True if copies stay after their extraction."""
    skip_missing: bool = False
    """True if files of months that are listed and do not exist are skipped."""

    def corpora(self) -> list[str]:
        """Names of the corpora."""
        return [name for name, given in ((NEWS, self.months), (WIKIPEDIA, self.dump)) if given]

    def sources(self, downloads: Path, *, recording: bool = True) -> dict[str, list[Source]]:
        """The files of each corpus, from lists that are kept in `downloads` if `recording`."""
        base = self._addresses()
        keeping = Keeping(downloads=downloads, is_kept=self.is_kept, recording=recording)
        found: dict[str, list[Source]] = {}
        if self.months:
            months = parse_months(self.months)
            files = list_months(months, base[NEWS], keeping, skip_missing=self.skip_missing)
            found[NEWS] = [_source(NEWS, file) for file in files]
        if self.dump:
            files = list_dump(self.dump, base[WIKIPEDIA], keeping)
            found[WIKIPEDIA] = [_source(WIKIPEDIA, file) for file in files]
        return found

    def _addresses(self) -> dict[str, str]:
        """The address of each corpus. Raises ConfigError for a mirror that cannot be one."""
        names, addresses = self.corpora(), dict(ADDRESSES)
        if self.mirrors and not names:
            shown = show_url(self.mirrors[0])
            raise ConfigError(f"--mirror {shown} is for --months and --dump; omit it")
        if self.is_kept and not names:
            raise ConfigError("--keep-downloads is for --months and --dump; omit it")
        if self.skip_missing and not self.months:
            raise ConfigError("--skip-missing is for --months; omit it")
        for given in self.mirrors:
            shown = f"--mirror {show_url(given)}"
            name, equals, url = given.partition("=")
            if "/" in name or not equals:  # the = may be the URL's own
                name, url = names[0], given
                if len(names) > 1:
                    raise ConfigError(f"{shown}: say of what, {NEWS}=URL {WIKIPEDIA}=URL")
            if name not in names:
                raise ConfigError(f"{shown}: mirrors are of {' and '.join(names)} here")
            advice = f"{shown}: give an address such as {ADDRESSES[name]}, no query"
            try:
                address = encoded_url(url)
            except ValueError as error:
                raise ConfigError(f"{advice} ({show_text(str(error), url)})") from error
            if urlsplit(address).query:
                raise ConfigError(advice)
            addresses[name] = address.rstrip("/")  # paths are joined to it with a slash
        return addresses


def require_place(corpus: str, inputs: list[str], chosen: list[str]) -> None:
    """Raises ConfigError if a chosen corpus is not of the one, or the group, that is prepared.

    corpus, inputs: as for `corpus_sources`; chosen: as `Selected.corpora` returns them.
    """
    for name in chosen:
        option = "--months" if name == NEWS else "--dump"
        members = GROUPS[corpus].members if corpus in GROUPS else [*CORPORA]
        if corpus == "sample" or (corpus in CORPORA and corpus != name) or name not in members:
            raise ConfigError(f"{option} gives files of {name}, not of {corpus}; omit it")
        if corpus == name and inputs:
            raise ConfigError(f"{option} and --input both give files of {name}; give one")


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

"""The Hub's copy of a named corpus that has no `--input`: downloaded once.

The copy is checked against the recipe first, so that an unsuitable one fails before the download.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from pipeline.base.errors import ConfigError
from pipeline.config.data_settings import DataSettings
from pipeline.ingest.corpora.catalogue import CORPORA, GROUPS, Hub
from pipeline.ingest.corpora.groups import member_inputs, require_members, require_size
from pipeline.ingest.corpora.hub_corpora import fetch_corpus, fetched_directory, is_fetched
from pipeline.ingest.corpora.suitability import require_fit_of_hub


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
    if revision:
        hub = replace(hub, revision=revision)
    require_fit_of_hub(corpus, hub, data)
    return [str(_directory(corpus, hub, downloads))]


def _check(corpus: str, inputs: list[str], revision: str, fetching: bool) -> None:
    """Raises ConfigError if an option would have no effect."""
    for option, given in ((f"--revision {revision}", bool(revision)), ("--fetch", fetching)):
        if given and corpus not in CORPORA and (revision or corpus not in GROUPS):
            names = ", ".join(CORPORA if revision else [*CORPORA, *GROUPS])
            raise ConfigError(f"{option}: --corpus {corpus} is not on the Hub; {names} are")
        if given and inputs and corpus in CORPORA:
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
        if not (paths or member in published) and (hub := CORPORA[member].hub) is not None
    }
    if inputs and not fetching:  # a forgotten member must not start a download
        hubs = {
            member: hub
            for member, hub in hubs.items()
            if is_fetched(fetched_directory(downloads, member, hub))
        }
    # All members before the first download: the last may be unsuitable.
    for member, hub in hubs.items():
        require_fit_of_hub(member, hub, data)
    # By the stated sizes, before hours of downloading; `prepare` counts the text again.
    if not inputs and not published and not allow_short:
        require_size(corpus, {member: hub.text_bytes for member, hub in hubs.items()}, "on the Hub")
    for member, hub in hubs.items():
        files[member] = [str(_directory(member, hub, downloads))]
    require_members(corpus, files, published)
    return [f"{member}={path}" for member, paths in files.items() for path in paths]


def _directory(corpus: str, hub: Hub, downloads: Path) -> Path:
    directory = fetched_directory(downloads, corpus, hub)
    if not is_fetched(directory):
        print(
            f"{corpus}: fetching {hub.id} at {hub.revision[:12]}, about "
            f"{hub.download_bytes / 1e9:.1f} GB, to {directory}",
            flush=True,
        )
    fetch_corpus(corpus, hub, downloads)
    print(f"{corpus}: {hub.id} at {hub.revision[:12]}, in {directory}", flush=True)
    return directory

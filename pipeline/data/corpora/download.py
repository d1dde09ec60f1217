"""Files of a named corpus that the command does not give: the Hub's copy, fetched once.

What is known of that copy is held against the recipe first: nobody waits for gigabytes to be told
that they will not do.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pipeline.config.run import DataSettings
from pipeline.data.corpora.catalogue import CORPORA, GROUPS, Hub
from pipeline.data.corpora.groups import member_inputs, require_members, require_size
from pipeline.data.corpora.hub import fetch, fetched_directory, is_fetched
from pipeline.data.corpora.suitability import require_fit_of_hub
from pipeline.errors import ConfigError


def download_missing(
    corpus: str,
    inputs: list[str],
    downloads: Path,
    data: DataSettings,
    *,
    revision: str = "",
    allow_short: bool = False,
    fetching: bool = False,
) -> list[str]:
    """`inputs`, with directories of the Hub's copies where a corpus has none of its own.

    downloads: where these are; revision: another one than the table's; fetching: also fetch those
    of a group of which only some members are given.
    """
    _check(corpus, inputs, revision, fetching)
    if corpus in GROUPS:
        return _group(corpus, inputs, downloads, data, allow_short, fetching)
    hub = CORPORA[corpus].hub if corpus in CORPORA else None
    if inputs or hub is None:
        return inputs
    if revision:
        hub = replace(hub, revision=revision)
    require_fit_of_hub(corpus, hub, data)
    return [str(_directory(corpus, hub, downloads))]


def _check(corpus: str, inputs: list[str], revision: str, fetching: bool) -> None:
    """ConfigError for options that would do nothing."""
    for option, given in ((f"--revision {revision}", bool(revision)), ("--fetch", fetching)):
        if given and corpus not in CORPORA and (revision or corpus not in GROUPS):
            names = ", ".join(CORPORA if revision else [*CORPORA, *GROUPS])
            raise ConfigError(f"{option}: --corpus {corpus} is not on the Hub; {names} are")
        if given and inputs and corpus in CORPORA:
            raise ConfigError(f"{option} is for the Hub's copy; drop it, or --input")


def _group(
    corpus: str,
    inputs: list[str],
    downloads: Path,
    data: DataSettings,
    allow_short: bool,
    fetching: bool,
) -> list[str]:
    files = member_inputs(corpus, GROUPS[corpus], inputs)
    hubs = {
        member: hub
        for member, paths in files.items()
        if not paths and (hub := CORPORA[member].hub) is not None
    }
    if inputs and not fetching:  # one that was forgotten is not a reason for a download
        hubs = {
            member: hub
            for member, hub in hubs.items()
            if is_fetched(fetched_directory(downloads, member, hub))
        }
    for member, hub in hubs.items():
        require_fit_of_hub(member, hub, data)
    if not inputs and not allow_short:
        require_size(corpus, {member: hub.text_bytes for member, hub in hubs.items()}, "on the Hub")
    for member, hub in hubs.items():
        files[member] = [str(_directory(member, hub, downloads))]
    require_members(corpus, files)
    return [f"{member}={path}" for member, paths in files.items() for path in paths]


def _directory(corpus: str, hub: Hub, downloads: Path) -> Path:
    directory = fetched_directory(downloads, corpus, hub)
    if not is_fetched(directory):
        print(
            f"{corpus}: fetching {hub.id} at {hub.revision[:12]}, about "
            f"{hub.download_bytes / 1e9:.1f} GB, to {directory}",
            flush=True,
        )
    fetch(corpus, hub, downloads)
    print(f"{corpus}: {hub.id} at {hub.revision[:12]}, in {directory}", flush=True)
    return directory

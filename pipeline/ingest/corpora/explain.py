"""The text of `--explain` about a corpus, from the catalogue; needs no network."""

from __future__ import annotations

import shlex
import textwrap

from pipeline.base.errors import ConfigError
from pipeline.config.settings import nearest
from pipeline.ingest.corpora.catalogue import CORPORA, GROUPS, SAMPLE_CORPORA, Corpus, Group, Hub
from pipeline.ingest.corpora.input_files import is_path

SAMPLE = "sample"
_LABEL = 18
"""Columns of the label."""


def explain(name: str, width: int) -> list[str]:
    """Lines about a corpus or group, 80 to 100 columns wide.

    width: the terminal's. Raises ConfigError if the name is unknown.
    """
    width = min(max(width, 80), 100)
    if name in GROUPS:
        return _group(name, GROUPS[name], width)
    if name in CORPORA:
        return _corpus(name, CORPORA[name], width)
    if name == SAMPLE:
        lines = [f"{SAMPLE}: 3 MB of text that ship with the code, to try everything out", ""]
        for member, corpus in SAMPLE_CORPORA.items():
            lines += _entry(member, f"{corpus.description}; {corpus.licence}", width)
        return lines
    if is_path(name):
        raise ConfigError(
            f"--corpus {name} --explain: it describes named corpora; see your own files by "
            f"`python -m pipeline.inspect {shlex.quote(name)}`"
        )
    names = [*CORPORA, *GROUPS, SAMPLE]
    raise ConfigError(
        f"--corpus {name} --explain: unknown corpus; did you mean {nearest(name, names)}? "
        f"({', '.join(names)})"
    )


def _corpus(name: str, corpus: Corpus, width: int) -> list[str]:
    lines = [*textwrap.wrap(f"{name}: {corpus.description}", width), ""]
    lines += _entry("published", corpus.published, width)
    lines += _entry("licence", corpus.licence, width)
    if corpus.hub:
        lines += _hub(corpus.hub, width)
    for label, texts in (("known defects", corpus.defects), ("elsewhere", corpus.alternatives)):
        lines += ["", f"  {label}"]
        for text in texts:
            lines += _wrap(text, width, "    - ", "      ")
    lines.append("")
    lines += _entry("your own files", f"--corpus {name} --input PATH...", width)
    lines += _entry("the Hub's copy", f"--corpus {name} --fetch, on a machine with network", width)
    return lines


def _hub(hub: Hub, width: int) -> list[str]:
    what = "sentences" if hub.sentences else "documents"
    about = (
        f"{hub.documents:,} {what}, {hub.text_bytes / 1e9:.1f} GB of text, "
        f"{hub.download_bytes / 1e9:.1f} GB to download{' (recalled)' * hub.recalled}; "
        f"licence: {hub.licence}"
    )
    return [
        *_entry("on the Hub", f"{hub.id}, {hub.files}", width),
        *_entry("", f"at {hub.revision}", width),
        *_entry("", about, width),
    ]


def _group(name: str, group: Group, width: int) -> list[str]:
    title = f"{name}: {group.description}; {', '.join(group.members)}"
    lines = [*textwrap.wrap(title, width), ""]
    lines += _entry("published", group.published, width)
    text = "dropped across members: the first member in this order keeps a document; --dedup"
    lines += _entry("near-duplicates", text, width)
    lines += _entry(
        "too short",
        "a member or the whole group with over a tenth less text than stated is refused, unless "
        "--allow-short is given",
        width,
    )
    lines += ["", f"  {'member':<14}{'stated':>10}{'the Hub has':>14}  --explain says more"]
    for member in group.members:
        corpus = CORPORA[member]
        size = f"{corpus.hub.text_bytes / 1e9:.1f} GB" if corpus.hub else "nothing"
        what = _shortened(corpus.description, width - 42)  # 42: the columns before it
        stated = f"{corpus.published_bytes / 1e9:.1f} GB"
        lines.append(f"  {member:<14}{stated:>10}{size:>14}  {what}")
    lines.append("")
    example = " ".join(f"{member}=PATH" for member in group.members)
    lines += _entry("your own files", f"--corpus {name} --input {example}", width, hang=2)
    lines += _entry(
        "", f"--corpus {name} --input DIR, with a folder named for each member", width, hang=2
    )
    lines += _entry("the Hub's copies", f"--corpus {name} --fetch", width)
    return lines


def _entry(label: str, text: str, width: int, hang: int = 0) -> list[str]:
    """A labelled paragraph."""
    return _wrap(text, width, f"  {label:<{_LABEL}}", " " * (_LABEL + 2 + hang))


def _wrap(text: str, width: int, first: str, rest: str) -> list[str]:
    """A paragraph with prefixes for its first line and the rest; URLs are never broken."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _shortened(text: str, room: int) -> str:
    return textwrap.shorten(text, max(room, 10), placeholder=" ...")

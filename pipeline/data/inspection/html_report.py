"""The report as a self-contained HTML page. Its text comes from documents and is escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from html import escape

from pipeline.base.html_page import whole_page
from pipeline.data.inspection.document_statistics import DocumentStatistics, Sample
from pipeline.data.inspection.text_report import (
    MOST_LANGUAGES_SHOWN,
    MOST_SITES_SHOWN,
    clusters_in_words,
    dates_in_words,
    reasons_in_order,
)
from pipeline.data.selection.decision_summary import DecisionSummary, Pair

_STYLE = """
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.2rem, 1fr));
  gap: .75rem; margin: 1rem 0 }
.tile { background: var(--box); border-radius: 8px; padding: .6rem 1rem }
.tile b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums }
table { border-collapse: collapse; table-layout: fixed; width: 100% }
td { padding: .15rem .5rem .15rem 0; vertical-align: middle; overflow-wrap: anywhere }
td.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; width: 11% }
td.b { width: 40% }
.bar { display: block; height: .85rem; min-width: 1px; background: var(--bar); border-radius: 2px }
.out .bar { background: var(--out) }
details { border-top: 1px solid var(--line); padding: .5rem 0 }
summary { cursor: pointer; font-weight: 600 }
article { background: var(--box); border-radius: 8px; padding: .6rem 1rem; margin: .6rem 0 }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font: 14px/1.5 Georgia, serif;
  margin: .4rem 0 0; max-height: 18rem; overflow-y: auto }
"""


def page(
    statistics: DocumentStatistics, title: str, about: str, decided: DecisionSummary | None = None
) -> str:
    """The page; about: a line under the title; decided: the group stage's decisions, if wanted."""
    kept, total = statistics.documents(), max(1, statistics.records())
    dropped = statistics.dropped() + statistics.bad
    tiles = [
        (f"{statistics.records():,}", "records read"),
        (f"{kept:,}", f"documents kept, {kept / total:.1%}"),
        (f"{dropped.total():,}", f"dropped, {dropped.total() / total:.1%}"),
        (f"{statistics.characters / 1e6:,.1f} M", "characters kept"),
        (f"{statistics.quantile(0.5):,}", "characters, median"),
        (f"{statistics.copied_share():.1%}", "exact copies"),
    ]
    parts = [
        f"<h1>{escape(title)}</h1><p class=soft>{escape(about)}</p>",
        '<div class="tiles">',
        *(f'<div class="tile"><b>{escape(n)}</b>{escape(what)}</div>' for n, what in tiles),
        "</div>",
        f"<p class=soft>{escape(period)}</p>" if (period := dates_in_words(statistics)) else "",
        _bars("Dropped, by reason", dropped.most_common(), total, "out"),
        _bars("Corpora", _several(statistics.corpora), kept, ""),
        _bars("Length in characters", _lengths(statistics), kept, ""),
        _shares("Languages", statistics.languages, MOST_LANGUAGES_SHOWN, kept),
        _shares("Sites", statistics.sites, MOST_SITES_SHOWN, kept),
        "<h2>Samples</h2>",
        *(_samples(reason, count, statistics) for reason, count in reasons_in_order(statistics)),
        _copies(decided, statistics) if decided else "",
    ]
    return whole_page(title, "\n".join(part for part in parts if part), _STYLE)


def _several(counts: Counter[str]) -> list[tuple[str, int]]:
    return list(counts.items()) if len(counts) > 1 else []


def _lengths(statistics: DocumentStatistics) -> list[tuple[str, int]]:
    return [(f"{fewest:,} to {2 * fewest - 1:,}", count) for fewest, count in statistics.octaves()]


def _shares(title: str, counts: Counter[str], most: int, kept: int) -> str:
    shown = counts.most_common(most)
    rest = counts.total() - sum(count for _, count in shown)
    rows = [*shown, *([("others", rest)] if rest else [])]
    known = counts.total() / max(1, kept)
    return _bars(f"{title} ({len(counts):,}, known for {known:.1%})", rows, counts.total(), "")


def _bars(title: str, rows: Iterable[tuple[str, int]], total: int, kind: str) -> str:
    """A heading and a bar for each row; empty if there are no rows."""
    rows = list(rows)
    if not rows:
        return ""
    # the longest bar takes the full width, so that small shares stay visible
    most = max(count for _, count in rows) or 1
    lines = [
        f'<tr><td>{escape(name)}</td><td class="n">{count:,}</td>'
        f'<td class="n">{count / max(1, total):.1%}</td><td class="b">'
        # an attribute of svg: the page's policy allows no style but that of its sheet
        f'<svg class="bar" width="{100 * count / most:.1f}%"></svg></td></tr>'
        for name, count in rows
    ]
    return f'<h2>{escape(title)}</h2><table class="{kind}">{"".join(lines)}</table>'


def _samples(reason: str, count: int, statistics: DocumentStatistics) -> str:
    samples = statistics.samples_of(reason)
    if not samples:
        return ""
    opened = " open" if not reason else ""
    articles = "".join(_article(sample) for sample in samples)
    return (
        f"<details{opened}><summary>{escape(reason or 'kept')} "
        f'<span class="soft">{len(samples)} of {count:,}</span></summary>{articles}</details>'
    )


def _copies(decided: DecisionSummary, statistics: DocumentStatistics) -> str:
    pairs = "".join(_pair(pair, statistics) for pair in decided.pairs)
    return f"<h2>Copies</h2><p>{escape(clusters_in_words(decided))}</p>{pairs}"


def _pair(pair: Pair, statistics: DocumentStatistics) -> str:
    """The dropped and the kept document side by side."""
    sides = "".join(
        f'<div><span class="soft">{what}: {escape(" ".join(document))}</span>'
        f"<pre>{escape(statistics.excerpts.get(document, ''))}</pre></div>"
        for what, document in (("dropped", pair.dropped), ("kept", pair.kept))
    )
    return f"<article><b>{escape(pair.reason)}</b><div class=pair>{sides}</div></article>"


def _article(sample: Sample) -> str:
    size = f" · {sample.characters:,} characters" if sample.characters else ""
    more = " …" if sample.characters > len(sample.excerpt) else ""
    title = f"<b>{escape(sample.title)}</b><br>" if sample.title else ""
    text = f"<pre>{escape(sample.excerpt)}{more}</pre>" if sample.excerpt else ""
    where = "" if sample.id.startswith(sample.origin) else f"{sample.origin} · "
    return (
        f'<article>{title}<span class="soft">{escape(where)}{escape(sample.id)}{size}</span>'
        f"{text}</article>"
    )

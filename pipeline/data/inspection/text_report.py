"""The report that `pipeline.inspect` prints about documents."""

from __future__ import annotations

import textwrap
from collections import Counter

from pipeline.data.inspection.document_statistics import KEPT, DocumentStatistics, Sample
from pipeline.data.selection.decision_summary import DecisionSummary
from pipeline.data.text.documents import UNDO_HTML, WITH_HTML

MOST_SITES_SHOWN = 15
MOST_LANGUAGES_SHOWN = 10
_EXCERPT = 400
_BAR = 40


def report_statistics(
    statistics: DocumentStatistics, width: int, decided: DecisionSummary | None = None
) -> list[str]:
    """Lines of `width` columns; decided: the group stage's decisions, if wanted."""
    return [
        *_counts(statistics),
        *_lengths(statistics),
        *_shares("languages", statistics.languages, MOST_LANGUAGES_SHOWN, statistics),
        *_shares("sites", statistics.sites, MOST_SITES_SHOWN, statistics),
        *_samples(statistics, width),
        *(_pairs(decided, statistics, width) if decided else []),
    ]


def _counts(statistics: DocumentStatistics) -> list[str]:
    total = max(1, statistics.records())
    lines = ["documents", f"  {statistics.records():>13,} read"]
    kept = statistics.documents()
    text = f"{statistics.characters:,} characters"
    lines.append(f"  {kept:>13,} kept, {kept / total:.1%}: {text}")
    if len(statistics.corpora) > 1:
        lines += [f"  {count:>13,}   of {name}" for name, count in statistics.corpora.items()]
    for title, reasons in (("dropped", statistics.dropped()), ("unusable", statistics.bad)):
        for reason, count in reasons.most_common():
            lines.append(f"  {count:>13,} {title}, {count / total:.1%}: {reason}")
    lines.append(f"  {statistics.copied_share():>13.1%} of those kept are exact copies")
    if statistics.with_html:
        lines.append(f"  {statistics.with_html:>13,} kept {WITH_HTML}; {UNDO_HTML}")
    if period := dates_in_words(statistics):
        lines.append(f"  {period}")
    return lines


def dates_in_words(statistics: DocumentStatistics) -> str:
    """The period of the documents, for a dump its date; empty if the files have no dates."""
    earliest, latest = (date[:10] for date in statistics.dates)
    return f"those kept were revised or fetched from {earliest} to {latest}" if latest else ""


def _lengths(statistics: DocumentStatistics) -> list[str]:
    if not statistics.documents():
        return []
    low, middle, high = (statistics.quantile(share) for share in (0.05, 0.5, 0.95))
    lines = [f"lengths in characters: median {middle:,}, 90 % from {low:,} to {high:,}"]
    octaves = statistics.octaves()
    most = max(count for _, count in octaves)
    for fewest, count in octaves:
        bar = "█" * round(_BAR * count / most)
        lines.append(f"  {fewest:>11,} - {2 * fewest - 1:<11,}{count:>11,} {bar}".rstrip())
    return lines


def _shares(
    title: str, counts: Counter[str], most: int, statistics: DocumentStatistics
) -> list[str]:
    known = counts.total()
    if not known:
        return [f"{title}: not in the files"]
    of = max(1, statistics.documents())
    lines = [f"{title}: {len(counts):,}, known for {known / of:.1%} of the documents"]
    for name, count in counts.most_common(most):
        lines.append(f"  {count:>13,} {count / known:>6.1%} {name}")
    if len(counts) > most:
        rest = known - sum(count for _, count in counts.most_common(most))
        lines.append(f"  {rest:>13,} {rest / known:>6.1%} others")
    return lines


def _samples(statistics: DocumentStatistics, width: int) -> list[str]:
    lines: list[str] = []
    for reason, count in reasons_in_order(statistics):
        samples = statistics.samples_of(reason)
        if not samples:
            continue
        lines += ["", f"{reason or 'kept'}: {len(samples)} of {count:,}"]
        for sample in samples:
            lines += _sample(sample, width)
    return lines


def clusters_in_words(decided: DecisionSummary) -> str:
    """Line with the number of near-duplicates, and the size of the largest cluster."""
    if not decided.clusters:
        return f"no two of {decided.documents:,} documents are similar"
    alike = sum(size * count for size, count in decided.clusters.items())
    return (
        f"{alike:,} of {decided.documents:,} documents are in {decided.clusters.total():,} "
        f"clusters of similar documents, the largest of {max(decided.clusters):,}"
    )


def _pairs(decided: DecisionSummary, statistics: DocumentStatistics, width: int) -> list[str]:
    lines = ["", f"copies: {clusters_in_words(decided)}"]
    for pair in decided.pairs:
        for what, document in (("dropped", pair.dropped), ("kept", pair.kept)):
            text = " ".join(statistics.excerpts.get(document, "")[: _EXCERPT // 2].split())
            first = "  - " if what == "dropped" else "    "
            lines += _wrap(f"{what}: {' '.join(document)}", width, first)
            lines += _wrap(text, width, " " * 6)
    return lines


def reasons_in_order(statistics: DocumentStatistics) -> list[tuple[str, int]]:
    """KEPT, then every reason, most documents first, with their counts."""
    kept = [(KEPT, statistics.documents())] if statistics.documents() else []
    return [*kept, *(statistics.dropped() + statistics.bad).most_common()]


def _sample(sample: Sample, width: int) -> list[str]:
    where = sample.id if sample.id.startswith(sample.origin) else f"{sample.origin} ({sample.id})"
    size = f", {sample.characters:,} characters" if sample.characters else ""
    title = f"{sample.title}: " if sample.title else ""
    text = " ".join(sample.excerpt[:_EXCERPT].split())
    if sample.characters > _EXCERPT:
        text += " ..."
    return _wrap(f"{title}{where}{size}", width, "  - ") + _wrap(text, width, " " * 6)


def _wrap(text: str, width: int, first: str) -> list[str]:
    """A paragraph; URLs are never broken, other text without spaces is."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=" " * 6,
        break_long_words="://" not in text,  # a broken URL cannot be clicked or copied
        break_on_hyphens=False,
    )

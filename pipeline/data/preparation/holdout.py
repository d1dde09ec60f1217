"""Chooses held-out documents by the hash of their text, before they are packed or duplicated.

A document goes to validation if its hash is below its corpus's threshold. So copies of a document
in one corpus are on the same side, and workers need not know each other's documents. A small corpus
has a higher threshold, so a copy of one of its held-out documents may be in another corpus's train
split.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from pipeline.base.errors import DataError
from pipeline.config.data_settings import DataSettings
from pipeline.data.selection.decisions import read_kept
from pipeline.data.text.documents import DocumentCounts
from pipeline.data.text.text_tasks import SPLIT_BYTES, SplitTask, cut_tasks
from pipeline.execution.workers import Executor, local_executor
from pipeline.ingest.documents.read import is_readable
from pipeline.ingest.documents.records import Source
from pipeline.ingest.documents.where import with_line

EVERY_HASH = 1 << 64
"""The threshold that holds out all documents: `data.validation_fraction=1`."""
MINIMUM_DOCUMENTS = 10
"""Documents held out at least; of a corpus with less than ten times as many a tenth, at least 1."""
VALIDATION_VERSION = 1
"""Goes into the fingerprint of shards."""
_HOPELESS = 1000
"""Unusable records at the start of a corpus after which it is given up."""

_FAR = 2
"""A hold-out that takes this many times as much as it should, or as much less, is reported."""
_MOST_NAMED = 8
"""Corpora of which this is said; there may be thousands of languages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldOut:
    """The hold-out of a corpus: exact if all of it was read, else expected."""

    threshold: int
    """The hash below which a document is held out."""
    documents: float
    held_documents: float
    text: float
    """Bytes of cleaned text."""
    held_text: float


def hold_outs(tasks: list[SplitTask], data: DataSettings, executor: Executor) -> dict[str, HoldOut]:
    """Per corpus, which kept documents are held out.

    Reads a corpus until `data.validation_fraction` holds out `MINIMUM_DOCUMENTS` of its documents
    (after about 2,000 documents at 0.005): then the fraction is the threshold. A corpus that ends
    before that gets a higher one. Raises DataError for a corpus without text.
    """
    corpora: dict[str, list[SplitTask]] = {}
    for task in tasks:
        corpora.setdefault(task.corpus, []).append(task)
    found = executor.call([partial(_hold_out, mine, data) for mine in corpora.values()])
    return dict(zip(corpora, found))


def validation_thresholds(tasks: list[SplitTask], data: DataSettings) -> dict[str, int]:
    """Per corpus, the hash below which a kept document is held out, see `hold_outs`."""
    alone = local_executor(1)
    return {corpus: found.threshold for corpus, found in hold_outs(tasks, data, alone).items()}


def expected_hold_outs(
    sources: list[Source], sizes: dict[str, tuple[float, float]], data: DataSettings
) -> dict[str, HoldOut]:
    """`hold_outs` before the files are prepared; sizes: documents and bytes of text, estimated.

    A corpus of one split is read. Of others, documents are held out with all sizes alike.
    """
    found: dict[str, HoldOut] = {}
    files_of: dict[str, list[Source]] = {}
    for source in sources:
        files_of.setdefault(source.corpus, []).append(source)
    for corpus, (documents, text) in sizes.items():
        files = files_of.get(corpus, [])
        tasks = cut_tasks(files) if all(map(is_readable, files)) else []
        if tasks and sum(task.weight for task in tasks) <= SPLIT_BYTES:
            found |= hold_outs(tasks, data, local_executor(1))
        else:
            fraction = data.validation_fraction
            held = max(fraction * documents, _count_wanted(round(documents)))
            found[corpus] = HoldOut(
                threshold=0, documents=documents, held_documents=held, text=text,
                held_text=text * held / documents,
            )  # fmt: skip
    return found


def describe_hold_outs(
    found: dict[str, HoldOut], fraction: float, sources: list[Source]
) -> list[str]:
    """A line with the share of the text that is held out, if a corpus's is far from `fraction`."""
    far = {
        corpus: f"{corpus} {about.held_text / about.text:.1%} ({about.held_documents:,.0f} of "
        f"{about.documents:,.0f} document(s))"
        for corpus, about in found.items()
        if not fraction / _FAR <= about.held_text / about.text <= fraction * _FAR
    }
    if not far:
        return []
    held, text = (sum(sizes) for sizes in zip(*((a.held_text, a.text) for a in found.values())))
    advice = "to come closer, give more or shorter documents"
    raw = [source.raw or source for source in sources if source.corpus in far]
    texts = [s for s in raw if any(format == "text" for format, *_ in s.kinds)]
    if any(source.plain_text == "blank_lines" for source in texts):
        advice += " (--plain-text lines if each line of the text is one)"
    named = [*far.values()][:_MOST_NAMED]
    if len(far) > len(named):
        named.append(f"and {len(far) - len(named):,} more corpora")
    return [
        f"warning: the hold-out takes about {held / text:.1%} of the text, where "
        f"data.validation_fraction={fraction:g} asks for {fraction:.1%}: "
        f"{', '.join(named)}; documents are held out whole, at least {MINIMUM_DOCUMENTS} of "
        f"a corpus or a tenth, by their hashes, whatever their length; {advice}"
    ]


def are_below(hashes: npt.NDArray[np.uint64], threshold: int) -> npt.NDArray[np.bool_]:
    """[n] True for documents that are held out, by the hashes of their texts."""
    # EVERY_HASH itself does not fit in 64 bits, hence <= and - 1
    return hashes <= np.uint64(threshold - 1) if threshold else np.zeros(hashes.shape, np.bool_)


def _hold_out(tasks: list[SplitTask], data: DataSettings) -> HoldOut:
    fraction = int(data.validation_fraction * EVERY_HASH)
    counts = DocumentCounts()
    seen: list[npt.NDArray[np.uint64]] = []
    read: list[npt.NDArray[np.int64]] = []  # bytes of the same documents
    below = 0
    for task in tasks:
        for batch in read_kept(task.pieces, task.decisions, data.seed, counts):
            seen.append(batch.hashes)
            read.append(np.diff(batch.offsets) - 1)
            below += int(are_below(batch.hashes, fraction).sum())
            if below >= MINIMUM_DOCUMENTS:
                about = _held(np.concatenate(seen), np.concatenate(read), fraction)
                weight = sum(task.weight for task in tasks)
                return _with_rest(about, weight, data.validation_fraction)
        if not seen and sum(counts.bad.values()) >= _HOPELESS:
            break
    if not seen:
        sources = list(dict.fromkeys(piece.source for task in tasks for piece in task.pieces))
        raise DataError(why_no_text(sources, counts))
    hashes, sizes = np.concatenate(seen), np.concatenate(read)
    if fraction == EVERY_HASH:
        return _held(hashes, sizes, fraction)
    # the corpus was read to its end, and the fraction holds out under MINIMUM_DOCUMENTS of it
    wanted = _count_wanted(len(hashes))
    distinct = np.unique(hashes)  # copies share a side, so they count once
    if len(distinct) == 1:
        return _held(hashes, sizes, 0)  # the only document is for training
    # just above the hash of the last document that is wanted
    threshold = max(fraction, int(distinct[min(wanted, len(distinct) - 1) - 1]) + 1)
    # At least one document stays in train.
    return _held(hashes, sizes, min(threshold, int(distinct[-1])))


def _count_wanted(documents: int) -> int:
    """Least number of documents that are held out."""
    return min(MINIMUM_DOCUMENTS, max(1, documents // 10))


def _held(hashes: npt.NDArray[np.uint64], sizes: npt.NDArray[np.int64], threshold: int) -> HoldOut:
    is_held = are_below(hashes, threshold)
    return HoldOut(
        threshold=threshold,
        documents=len(hashes),
        held_documents=int(is_held.sum()),
        text=int(sizes.sum()),
        held_text=int(sizes[is_held].sum()),
    )


def _with_rest(seen: HoldOut, weight: int, fraction: float) -> HoldOut:
    """The hold-out of a corpus of which some documents were read; weight: its bytes of text."""
    # weights are estimates, of compressed files by a factor
    rest = max(0.0, weight - seen.text)
    documents = rest * seen.documents / max(1, seen.text)
    return replace(
        seen,
        documents=seen.documents + documents,
        held_documents=seen.held_documents + fraction * documents,
        text=seen.text + rest,
        held_text=seen.held_text + fraction * rest,
    )


def why_no_text(sources: list[Source], counts: DocumentCounts) -> str:
    """Why no document of a corpus, or of several, has text, and what to do."""
    first, *_ = files = list(dict.fromkeys(file for source in sources for file in source.raw_files))
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.dropped.items())
    if counts.left_out:
        return (
            f"corpus {first.corpus}: all documents of {len(files)} file(s) are dropped: "
            f"{reasons}; omit the corpus, or relax --dedup, --filter, --most-words or --map"
        )
    example = with_line(counts.bad_example, sources)
    what = example or reasons or f"{first.name}: only white space"
    has_fields = first.format in ("jsonl", "wiki_jsonl", "json_array", "csv", "parquet", "arrow")
    advice = "name the field with --text-field" if has_fields else "give other files"
    if [*counts.bad] == ["invalid UTF-8"]:
        advice = "convert the text to UTF-8"
    if counts.failed_in_map:
        advice = "fix the function of --map"
    return f"corpus {first.corpus} has no text in {len(files)} file(s): {what}; {advice}"

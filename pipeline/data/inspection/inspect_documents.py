"""Inspect documents before they are packed: raw files, or extracted ones."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pipeline.base.command_line import data_root, next_lines
from pipeline.base.errors import escaped
from pipeline.base.progress import tracked
from pipeline.data.inspection.document_statistics import KEPT, DocumentStatistics, Found, find
from pipeline.data.inspection.text_report import report_statistics
from pipeline.data.selection.decision_summary import DecisionSummary, newest
from pipeline.data.selection.filters import Filters, filters_by_corpus, rewrite_texts
from pipeline.data.text.cleaning import clean
from pipeline.data.text.document_map import Document, apply_map
from pipeline.data.text.line_rules import keep_lines
from pipeline.ingest.corpora.sources import (
    corpus_sources,
    own_name,
    print_input,
)
from pipeline.ingest.documents.read import cut
from pipeline.ingest.documents.records import BadRecord, Rewriting
from pipeline.ingest.extraction.packs import PACK

_PIECE_BYTES = 8 << 20
_NO_DOCUMENTS = {"manifest.json", ".work", "word_starts.bin", "tokenizer.json"}
"""Files in a directory of shards or of a tokenizer."""


def holds_documents(path: Path) -> bool:
    """True if a path holds text rather than shards, complete or not."""
    if not path.is_dir():
        return path.exists()
    names = {file.name for file in path.iterdir()}
    return bool(names) and not names & _NO_DOCUMENTS


def inspect_documents(arguments: argparse.Namespace) -> None:
    """Print a report about the documents of a path.

    Files are read as they are: nothing is extracted to $TENFOLD_ROOT/documents.
    """
    path: Path = arguments.directory
    given, inputs = _name_corpus(arguments)
    _, sources = corpus_sources(
        given, inputs, arguments.text_field, arguments.plain_text, is_mapped=bool(arguments.map)
    )
    sources = rewrite_texts(sources, arguments.map, arguments.filter)
    filters = filters_by_corpus(arguments.filter, [source.corpus for source in sources])
    print_input(sources, escaped(str(path)))
    decided = _decided(arguments, data_root() / "documents" / "decisions")
    statistics = DocumentStatistics(arguments.samples)
    if decided:
        for pair in decided.pairs:
            statistics.wanted |= {pair.dropped, pair.kept}
    # Ids are those of `prepare`, where pages have those of their group, other files their own.
    packs = [source for source in sources if source.format == PACK]
    total = len(sources) - len(packs) + sum(n for s in packs for _, _, n, _ in s.kinds)
    files = (file for s in sources for file in (s.files if s.format == PACK else (s,)))
    for source in tracked(files, "reading documents", "files", total):
        for piece in cut(source, _PIECE_BYTES):
            for found in find(piece):
                statistics.add(_judge(found, source.rewriting, filters[source.corpus], decided))
    if decided and len(statistics.excerpts) < len(statistics.wanted):
        print(
            "some documents of the decisions are missing here: give the same --corpus and files "
            "as to pipeline.prepare"
        )
    width = min(max(shutil.get_terminal_size((100, 20)).columns, 80), 100)
    print("\n".join(report_statistics(statistics, width, decided)))
    if statistics.documents():
        print("\n".join(next_lines(["prepare", *_as_words(arguments, given, inputs)])))


def _name_corpus(arguments: argparse.Namespace) -> tuple[str, list[str]]:
    """--corpus and --input with which `prepare` reads the path, too."""
    path: Path = arguments.directory
    if path.resolve() == (data_root() / "documents").resolve():  # without its subdirectories
        return arguments.corpus or "documents", [str(path / "*.parquet")]
    if arguments.corpus:
        return arguments.corpus, [str(path)]
    name = own_name(path)
    if name != path.absolute().name.split(".")[0]:
        return name, [str(path)]
    return str(path), []


def _as_words(
    arguments: argparse.Namespace, corpus: str, inputs: Sequence[str]
) -> Iterator[str | Path]:
    """The options of `prepare` for what was inspected."""
    options: dict[str, Sequence[str | Path]] = {
        "--corpus": [corpus], "--input": [Path(given) for given in inputs],
        "--text-field": [arguments.text_field],
        "--plain-text": [arguments.plain_text], "--map": [arguments.map],
        "--filter": arguments.filter,
    }  # fmt: skip
    for option, values in options.items():
        if any(values):
            yield from (option, *values)


def _decided(arguments: argparse.Namespace, decisions: Path) -> DecisionSummary | None:
    if arguments.decisions is None:
        return None
    directory = arguments.decisions or newest(decisions)
    print(f"decisions: {directory}")
    return DecisionSummary.read(Path(directory), arguments.samples)


def _judge(
    found: Found, rewriting: Rewriting, filters: Filters, decided: DecisionSummary | None
) -> Found:
    """The document as `prepare` makes it of what is found: with another text, or dropped."""
    if found.reason != KEPT:
        return found
    if decided and (why := decided.why(found.corpus, found.id)):
        return replace(found, reason=why)
    if rewriting.function:
        document = Document(
            found.text,
            found.id,
            found.corpus,
            found.origin,
            found.language,
            found.date,
            found.fields,
        )
        made = apply_map(rewriting, document)
        if made == "" and found.textless:
            made = found.textless
        if not isinstance(made, str):
            return replace(found, reason=made.reason, is_bad=isinstance(made, BadRecord))
        found = replace(found, text=made)
    text = clean([found.text]) if filters != Filters() else None
    if text is None or len(text.buffer) == 1:  # only a NUL: empty
        return found
    lines = keep_lines(text, np.array([filters.c4]))
    reasons = filters.first_reasons(lines.text.buffer, lines.text.offsets)
    why = lines.dropped.get(0) or reasons[0] or KEPT
    return replace(found, text=lines.text.document(0), reason=why)

"""The choice among files of several formats, and of how plain text is split; and notes on both.

Plain text next to files of records (JSON lines, Parquet, ...) in a directory is skipped if the
records are most of the bytes. `--plain-text` reads all of it. Files that are named themselves are
always read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.base.errors import escaped
from pipeline.ingest.corpora.found_files import InputFile
from pipeline.ingest.corpora.input_files import in_threads
from pipeline.ingest.documents.byte_blocks import read_blocks, with_newlines
from pipeline.ingest.documents.packed_rows import RowQueue
from pipeline.ingest.documents.plain_text import GAP
from pipeline.ingest.documents.records import (
    FORMAT_NAMES,
    PLAIN_TEXT_FORMATS,
    Format,
    PlainText,
    Source,
)
from pipeline.ingest.documents.sniff import DATA_NAME
from pipeline.ingest.extraction.packs import group_files, ungrouped

MOST_DOCUMENTS = 10
"""Documents per plain text file; more are reported."""
LONG_DOCUMENT = 4 << 20
"""Bytes of a document of plain text; a longer one is reported."""
SAMPLED_FILES = 8
"""Plain text files whose first bytes are looked at before the run; the run counts all of them."""
_SAMPLED_BYTES = LONG_DOCUMENT + 1
# Lines that are documents, as measured on 50 novels of several layouts, of which those with a
# paragraph in each line come closest (at least 28 % of the lines are short), and on articles of
# Wikinews and pages of Common Crawl, each in a line (at most 2 % are short).
_MANY_LINES = 100
"""Lines without a blank line between them, at least."""
_SHORT_LINE = 200
"""Bytes; a shorter line is rarely a document."""
_FEW_SHORT = 0.15
_MANY_ENDED = 0.5
"""The share of lines that end as a sentence does, at least; in a log none do."""
_LAST = frozenset(".!?\u2026\u3002\uff01\uff1f\u061f\u06d4\u0964\u1362\u0589")
_CLOSING = "\"')]}\u00bb\u2019\u201d\u300d\u300f\uff09"
_NAMED = 5
"""At most this many files are listed by name."""

_SPLIT: dict[PlainText, str] = {
    "file": "one document per file",
    "book": "one book per file",
    "blank_lines": "documents between blank lines",
    "lines": "one document per line",
}


@dataclass(slots=True)
class _GivenFolder:
    """The files that were found in a given directory."""

    kinds: Counter[Format] = field(default_factory=Counter)
    """Files that are read, by format."""
    text_bytes: int = 0
    """Bytes of plain text."""
    record_bytes: int = 0
    """Bytes of other files."""
    is_walked: bool = False
    """True if a file was not given itself."""
    left_out: list[str] = field(default_factory=list)
    """Names of files."""

    def add(self, file: InputFile, source: Source) -> None:
        self.kinds[source.format] += 1
        self.is_walked |= not file.is_given
        if source.format in PLAIN_TEXT_FORMATS:
            self.text_bytes += source.size
        else:
            self.record_bytes += source.size

    def records(self) -> Counter[Format]:
        """Files that are not plain text, by format."""
        return Counter({k: n for k, n in self.kinds.items() if k not in PLAIN_TEXT_FORMATS})

    def is_of_records(self) -> bool:
        """True if files of records are most of it, so that plain text is skipped."""
        return self.is_walked and self.text_bytes < self.record_bytes


def choose_sources(
    files: Iterable[InputFile], sniff: Callable[[InputFile], Source], *, reads_all_text: bool
) -> Iterator[Source]:
    """The sources to read, by name, as the files are; prints what is left out, and why.

    All formats are known before the first source is yielded, so a few bytes are kept of each file.
    reads_all_text: the user gave --plain-text, so no plain text is left out.
    """
    folders: defaultdict[str, _GivenFolder] = defaultdict(_GivenFolder)
    like: Source | None = None
    found = RowQueue()
    for file, like in in_threads(lambda file: (file, sniff(file)), files):
        folders[file.folder].add(file, like)
        found.append((file.folder, file.is_given, *like.row))
    of_records = {name for name, folder in folders.items() if folder.is_of_records()}
    dropping = set[str]() if reads_all_text else of_records

    def is_dropped(folder: str, is_given: bool, *row: Any) -> bool:
        # The fourth of `Source.row` is the format.
        return folder in dropping and not is_given and row[3] in PLAIN_TEXT_FORMATS

    if dropping:
        for row in found:
            if is_dropped(*row):
                folders[row[0]].left_out.append(row[3])  # after the folder and is_given: its name
    for name, folder in folders.items():
        _tell_chosen(name, folder)
    for row in found.take():
        if like and not is_dropped(*row):
            yield like.alike(row[2:])


def _tell_chosen(name: str, folder: _GivenFolder) -> None:
    if folder.left_out:
        _tell_left_out(name, folder.records(), folder.left_out)
    elif len(folder.kinds) > 1:
        print(
            f"note: {escaped(name)} holds {_counted(folder.kinds)}; all are read; to choose, name "
            "the files or a glob"
        )


def choose_corpora(folder: str, sources: list[Source], beside: Collection[str]) -> list[Source]:
    """The sources of a folder whose entries are corpora, by the rule above; prints what it omits.

    beside: paths of the files in the folder itself.
    """
    text = [
        file
        for source in sources
        for file in source.files
        if file.format in PLAIN_TEXT_FORMATS and file.path in beside
    ]
    kinds = [kind for source in sources for kind in source.kinds]
    records = sum(size for format, _, _, size in kinds if format not in PLAIN_TEXT_FORMATS)
    if not text or sum(file.size for file in text) >= records:
        return sources
    dropped = {file.path for file in text}
    kept = group_files(file for file in ungrouped(sources) if file.path not in dropped)
    _tell_left_out(folder, count_formats(kept), [file.name for file in text])
    return kept


def count_formats(sources: list[Source]) -> Counter[Format]:
    """Files by format, those in groups, too."""
    counts: Counter[Format] = Counter()
    for source in sources:
        for format, _, number, _ in source.kinds:
            counts[format] += number
    return counts


def _tell_left_out(folder: str, kept: Counter[Format], left_out: list[str]) -> None:
    print(
        f"note: {escaped(folder)} holds {_counted(kept)}; {len(left_out):,} other file(s) "
        f"are skipped ({_listed(left_out)}); --plain-text reads them as documents"
    )


def _counted(formats: Counter[Format]) -> str:
    return ", ".join(f"{count:,} {FORMAT_NAMES[format]}" for format, count in formats.items())


def _listed(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:_NAMED])
    return shown + (f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else "")


def plain_text_notes(sources: list[Source]) -> Iterator[str]:
    """Lines about plain text that may be split in the wrong places, from a few of the files."""
    corpora: dict[str, list[Source]] = {}
    for source in sources:
        corpora.setdefault(source.corpus, []).append(source)
    for corpus, its in corpora.items():
        sizes, tables = _texts_in_order(its)
        order = np.argsort(sizes, kind="stable")
        last = max(min(len(order), SAMPLED_FILES) - 1, 1)
        # Evenly spaced by rank of size, the smallest and the largest file included.
        places = {i * (len(order) - 1) // last for i in range(min(len(order), SAMPLED_FILES))}
        files = _texts_at(its, order[sorted(places)].tolist())
        texts = [*map(_start, files)]
        documents = [document for some in texts for document in some]
        split = files[0].plain_text if files else "file"
        if tables:  # only --plain-text, meant for their neighbours, turns these into text
            yield (
                f"note: {corpus}: --plain-text reads {_listed(tables)} as {_SPLIT[split]}; to read "
                "records instead, prepare such files by themselves, without --plain-text"
            )
        by_line = [text for text in documents if split != "lines" and looks_like_documents(text)]
        if sum(map(len, by_line)) * 2 > sum(map(len, documents)):
            size = sum(map(len, by_line)) // sum(text.count(b"\n") + 1 for text in by_line)
            yield (
                f"note: {corpus}: plain text is read as {_SPLIT[split]} (--plain-text {split}), "
                f"but its lines look like documents ({size:,} bytes on average, most end as a "
                "sentence does, no blank lines between them); if they are, give --plain-text lines"
            )
            continue
        found = {
            "files": len(order),
            "documents": len(documents) * len(order) // max(len(texts), 1),
            "long": sum(len(text) > LONG_DOCUMENT for text in documents),
        }
        yield from describe_plain_text(corpus, split, found, "at least about ")


def _texts(source: Source) -> list[Source]:
    """The files of plain text of a file or group."""
    has_text = any(format in PLAIN_TEXT_FORMATS for format, *_ in source.kinds)
    return [file for file in source.files if file.format in PLAIN_TEXT_FORMATS] if has_text else []


def _texts_in_order(sources: list[Source]) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Sizes of the files of plain text in order, and the names of those that look like tables.

    In one pass: a group makes its files, of which there can be millions, each time it is asked.
    """
    tables: list[str] = []

    def sizes() -> Iterator[int]:
        for source in sources:
            for file in _texts(source):
                if DATA_NAME.search(file.name):
                    tables.append(file.name)
                yield file.size

    return np.fromiter(sizes(), np.int64), tables


def _texts_at(sources: list[Source], places: list[int]) -> list[Source]:
    """The files of plain text at these places among all of them."""
    found: dict[int, Source] = {}
    first = 0
    for source in sources:
        stop = first + sum(n for format, _, n, _ in source.kinds if format in PLAIN_TEXT_FORMATS)
        if any(first <= place < stop for place in places):
            found |= zip(range(first, stop), _texts(source))
        first = stop
    return [found[place] for place in places]


def looks_like_documents(text: bytes) -> bool:
    """True if the lines of what is read as one document look like documents themselves.

    They are many and long, and end as sentences do. Lines of wrapped text, verse, lists and
    dialogue are short, and those of logs and tables do not end so.
    """
    lines = [line for line in text.split(b"\n") if line.strip()]
    short = sum(len(line) < _SHORT_LINE for line in lines)
    if len(lines) < _MANY_LINES or short > _FEW_SHORT * len(lines):
        return False
    ended = sum(_ends_sentence(line) for line in lines)
    return ended >= _MANY_ENDED * len(lines)


def _ends_sentence(line: bytes) -> bool:
    # The last bytes may begin inside a character.
    end = line[-16:].decode(errors="ignore").rstrip().rstrip(_CLOSING)
    return end[-1:] in _LAST


def describe_plain_text(
    corpus: str, split: PlainText, found: dict[str, int], about: str = ""
) -> Iterator[str]:
    """Lines on how plain text was split, if that may be wrong, and the option to change it.

    found: numbers of `files`, `documents` and `long` ones; about: a word before the documents.
    """
    files, documents, long = (found.get(name, 0) for name in ("files", "documents", "long"))
    how = f"{corpus}: plain text is read as {_SPLIT[split]} (--plain-text {split})"
    if documents > MOST_DOCUMENTS * files:
        yield (
            f"note: {how}, {about}{documents:,} documents in {files:,} file(s); if a file is one "
            "document, give --plain-text file"
        )
    if long:
        others = [f"--plain-text {other}" for other in ("blank_lines", "lines") if other != split]
        yield (
            f"note: {how}, and {long:,} document(s) have over {LONG_DOCUMENT >> 20} MB; if a file "
            f"holds many documents, give {' or '.join(others)}"
        )


def _start(source: Source) -> list[bytes]:
    """The documents at the start of a plain text file; the last one may be cut."""
    head = bytearray()
    for block in read_blocks(source.path, source.compression, 0, _SAMPLED_BYTES):
        head += block[: _SAMPLED_BYTES - len(head)]
        if len(head) == _SAMPLED_BYTES:
            break
    content = with_newlines(bytes(head), of_text=True)
    parts = [content]
    if source.plain_text == "lines":
        parts = content.split(b"\n")
    elif source.plain_text == "blank_lines" and source.format == "text":
        parts = GAP.split(content)
    return [part for part in parts if part.strip()]

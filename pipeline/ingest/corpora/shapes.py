"""What files of several formats, and plain text, become: what is read, and how to choose otherwise.

Plain text beside files of records (JSON lines, Parquet, ...) in a directory is left out if its name
says that it describes them (README, LICENSE, checksums), or if the records are most of the bytes.
`--plain-text` reads all of it. Files that are named themselves are always read.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator

from pipeline.base.errors import escaped
from pipeline.ingest.corpora.input_files import InputFile, in_threads
from pipeline.ingest.documents.byte_blocks import read_blocks
from pipeline.ingest.documents.plain_text import GAP
from pipeline.ingest.documents.records import (
    FORMAT_NAMES,
    PLAIN_TEXT_FORMATS,
    PlainText,
    Source,
)

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

_DESCRIBES = re.compile(
    r"(?:read[-_.]?me|licen[cs]e|copying|copyright|notice|credits|authors|contributors|citation|"
    r"change[-_.]?log|sources|datasheet|dataset[-_.]?card)(?:[-_.].*)?"
    r"|(?:.*[-_.])?(?:md5|sha\d*|checksums?|crc32|b2)(?:sums?)?(?:\.txt)?"
    r"|(?:md5|sha\d+|b2)sums?(?:[-_.].*)?|.*\.(?:asc|sig|crc)|_success",
    re.IGNORECASE,
)
_SPLIT: dict[PlainText, str] = {
    "file": "one document per file",
    "book": "one book per file",
    "blank_lines": "documents between blank lines",
    "lines": "one document per line",
}


def choose_sources(
    files: list[InputFile], sniff: Callable[[InputFile], Source], *, reads_all_text: bool
) -> list[Source]:
    """The sources to read, by name; prints what is left out, and why.

    Empties `files`, so that no file is kept in two forms. reads_all_text: the user gave
    --plain-text, so no plain text is left out.
    """
    folders: dict[str, list[InputFile]] = {}
    for file in files:
        folders.setdefault(file.folder, []).append(file)
    files.clear()
    sources: list[Source] = []
    for folder, some in folders.items():
        sources += _chosen(folder, some, sniff, reads_all_text)
    return sorted(sources, key=lambda source: source.name)


def _chosen(
    folder: str, files: list[InputFile], sniff: Callable[[InputFile], Source], reads_all_text: bool
) -> list[Source]:
    """Those of the files of one directory that are read; empties `files`."""
    given = {file.name for file in files if file.is_given}
    may_drop = not reads_all_text and len(given) < len(files)
    describing, left = list[InputFile](), deque[InputFile]()
    for file in files:
        describes = may_drop and not file.is_given and _DESCRIBES.fullmatch(file.base_name)
        (describing if describes else left).append(file)
    files.clear()
    found = [*in_threads(sniff, (left.popleft() for _ in range(len(left))))]
    if any(source.format not in PLAIN_TEXT_FORMATS for source in found):
        left_out = [file.name for file in describing]
    else:
        found += [sniff(file) for file in describing]
        left_out = []
    text = [source for source in found if source.format in PLAIN_TEXT_FORMATS]
    records = [source for source in found if source.format not in PLAIN_TEXT_FORMATS]
    if records and may_drop and _size(text) < _size(records):
        left_out += [source.name for source in text if source.name not in given]
        dropped = {*left_out}
        found = [source for source in found if source.name not in dropped]
    if left_out:
        _tell_left_out(folder, records, left_out)
    elif len({source.format for source in found}) > 1:
        print(
            f"note: {escaped(folder)} holds {_counted(found)}; all are read; to choose, name the "
            "files or a glob"
        )
    return found


def describes_data(name: str) -> bool:
    """Whether a file of this name describes the files beside it."""
    return _DESCRIBES.fullmatch(name) is not None


def choose_corpora(
    folder: str, sources: list[Source], beside: Collection[str], describing: list[str]
) -> list[Source]:
    """The sources of a folder whose entries are corpora, by the rule above; prints what it omits.

    beside: paths of the files in the folder itself; describing: names of those that are not in
    `sources`, as they describe the others.
    """
    text = [s for s in sources if s.format in PLAIN_TEXT_FORMATS and s.path in beside]
    records = [source for source in sources if source.format not in PLAIN_TEXT_FORMATS]
    kept, left_out = sources, describing
    if _size(text) < _size(records):
        dropped = {source.path for source in text}
        kept = [source for source in sources if source.path not in dropped]
        left_out = [*describing, *(source.name for source in text)]
    if left_out:
        _tell_left_out(folder, kept, left_out)
    return kept


def _tell_left_out(folder: str, kept: list[Source], left_out: list[str]) -> None:
    print(
        f"note: {escaped(folder)} holds {_counted(kept)}; {len(left_out):,} other file(s) "
        f"are skipped ({_listed(left_out)}); --plain-text reads them as documents"
    )


def _size(sources: list[Source]) -> int:
    return sum(source.size for source in sources)


def _counted(sources: list[Source]) -> str:
    counts = Counter(FORMAT_NAMES[source.format] for source in sources)
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def _listed(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:_NAMED])
    return shown + (f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else "")


def plain_text_notes(sources: list[Source]) -> Iterator[str]:
    """Lines about plain text that may be split in the wrong places, from a few of the files."""
    corpora: dict[str, list[Source]] = {}
    for source in sources:
        own = corpora.setdefault(source.corpus, [])
        own += [source] if source.format in PLAIN_TEXT_FORMATS else []
    for corpus, files in corpora.items():
        files.sort(key=lambda source: source.size)
        last = max(min(len(files), SAMPLED_FILES) - 1, 1)
        places = {i * (len(files) - 1) // last for i in range(min(len(files), SAMPLED_FILES))}
        texts = [_start(files[place]) for place in sorted(places)]
        documents = [document for some in texts for document in some]
        split = files[0].plain_text if files else "file"
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
            "files": len(files),
            "documents": len(documents) * len(files) // max(len(texts), 1),
            "long": sum(len(text) > LONG_DOCUMENT for text in documents),
        }
        yield from describe_plain_text(corpus, split, found, "at least about ")


def looks_like_documents(text: bytes) -> bool:
    """Whether the lines of what is read as one document look like documents themselves.

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
    end = line[-16:].decode(errors="ignore").rstrip().rstrip(_CLOSING)
    return end[-1:] in _LAST


def describe_plain_text(
    corpus: str, split: PlainText, found: dict[str, int], about: str = ""
) -> Iterator[str]:
    """What plain text became, if that may be wrong, and the option that chooses otherwise.

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
    content = bytes(head)
    parts = [content]
    if source.plain_text == "lines":
        parts = content.split(b"\n")
    elif source.plain_text == "blank_lines" and source.format == "text":
        parts = GAP.split(content)
    return [part for part in parts if part.strip()]

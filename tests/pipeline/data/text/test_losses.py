"""Rules that take over half of a file or a corpus are named, with the worst files."""

import json
import unicodedata
from pathlib import Path

import pytest

from pipeline.data.text import losses
from pipeline.data.text.documents import DocumentCounts, read_batches
from pipeline.data.text.losses import CLEANING, LARGE_FILE, READ, describe_losses
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.ingest.documents.books import LICENCE
from pipeline.ingest.documents.read import cut
from tests.pipeline.ingest.files import put
from tests.pipeline.preparing import Prepare

HEADER = "The Project Gutenberg eBook of A\n\n*** START OF THE PROJECT GUTENBERG EBOOK ***\n\n"
FOOTER = "\n\n*** END OF THE PROJECT GUTENBERG EBOOK ***\n"
SENTENCE = "It was a dark night, and nobody was at the ford. "
TERMS = "Permission is granted to nobody. "


def counted(*paths: Path) -> DocumentCounts:
    counts = DocumentCounts()
    _, sources = corpus_sources("bookcorpus", [str(path) for path in paths])
    pieces = tuple(piece for source in sources for piece in cut(source, 1 << 20))
    for batch in read_batches(pieces, 0, counts):
        counts.bytes += int(batch.offsets[-1]) - len(batch.ids)
    return counts


def described(counts: DocumentCounts) -> list[str]:
    return [*describe_losses("books", counts.bytes, counts.taken, counts.files)]


def test_the_file_the_figures_and_the_rule_are_named(tmp_path: Path) -> None:
    """Ordinary text loses next to nothing."""
    korean = unicodedata.normalize("NFD", "시의회는 겨울 동안 다리를 폐쇄하기로 결정했다. ") * 20
    (tmp_path / "korean.txt").write_text(korean)
    (tmp_path / "night.txt").write_text(f"{HEADER}{SENTENCE * 20}{FOOTER}".replace("\n", "\r\n"))
    counts = counted(tmp_path)
    assert described(counts) == [] and counts.taken.keys() == {LICENCE}
    composed = unicodedata.normalize("NFC", korean).encode()
    assert losses.cleaned_away(korean, 10) == len(composed) - 10
    (tmp_path / "short.txt").write_text(f"{HEADER}{SENTENCE}{FOOTER}{TERMS * 40}")
    (tmp_path / "blank.txt").write_text(f"{SENTENCE}{' ' * 900}\n" * 2)
    counts = counted(tmp_path)
    [files] = described(counts)
    blank, short = counts.files["blank.txt"], counts.files["short.txt"]
    assert blank == {READ: 2 * len(SENTENCE) + 900, CLEANING: 901}
    assert short[READ] == short[LICENCE] + len(SENTENCE) - 1
    assert (
        f"books: over half was cut from short.txt (of {short[READ]:,} bytes {short[LICENCE]:,} by "
        f"{LICENCE!r}), blank.txt (of {blank[READ]:,} bytes 901 by {CLEANING!r});"
    ) in files


def test_a_corpus_and_millions_of_files_give_one_line_and_small_markers() -> None:
    [corpus] = describe_losses("news", 40, {"too few words": 50, "language de": 9, CLEANING: 1}, {})
    by = f"of 100 bytes 50 by 'too few words', 9 by 'language de', 1 by {CLEANING!r};"
    assert corpus.startswith("warning: news: over half of the text") and by in corpus
    assert [*describe_losses("news", 50, {"too few words": 50}, {})] == []
    assert [*describe_losses("empty", 0, {}, {})] == []
    files = {f"{n}.txt": {READ: 100, LICENCE: 60 + n % 40} for n in range(1000)}
    files["fine.txt"] = {READ: 100}
    files["large.txt"] = {READ: LARGE_FILE, CLEANING: 7}
    kept = losses.kept_entries(files)
    assert len(kept) == losses.MOST_FILES + 1 and kept["large.txt"] == files["large.txt"]
    assert "fine.txt" not in kept and kept["119.txt"][LICENCE] == 99
    [line] = describe_losses("books", 1 << 30, {}, kept)
    assert line.count(".txt") == 5 and "and others; " in line


def test_a_large_file_is_judged_by_all_of_its_parts() -> None:
    """The first part lost all of its text; the whole file, little."""
    total = DocumentCounts()
    for taken in (LARGE_FILE, 0, 0):
        part = DocumentCounts()
        part.take_away("a.jsonl", CLEANING, taken, LARGE_FILE)
        total.add(DocumentCounts(files=json.loads(json.dumps(losses.kept_entries(part.files)))))
    assert total.files == {"a.jsonl": {READ: 3 * LARGE_FILE, CLEANING: LARGE_FILE}}
    assert described(total) == []


@pytest.mark.usefixtures("root")
def test_prepare_warns(tmp_path: Path, make: Prepare) -> None:
    for number in range(12):
        put(tmp_path / "books" / f"{number}.txt", f"Book {number}. {SENTENCE * 60}")
    put(tmp_path / "books" / "short.txt", f"{HEADER}{SENTENCE}{FOOTER}{TERMS * 90}")
    said = make("--corpus", "bookcorpus", "--input", tmp_path / "books")
    [files] = [line for line in said.split("\n") if "over half" in line]
    assert "bookcorpus: over half was cut from short.txt (of 3," in files and repr(LICENCE) in files

"""Bad input, through the command: bad records are counted, bad files are one-line errors.

More of it: damaged compressions, JSON and Parquet in ingest/documents, dumps and archives in
ingest/extraction, services in remote.
"""

import gzip
import io
import os
import re
import sys
import tracemalloc
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from pipeline import inspect
from pipeline.data.shards.manifest import MANIFEST
from pipeline.ingest.documents import byte_blocks, json_lines, where
from pipeline.ingest.documents.read import cut, read
from pipeline.ingest.documents.records import BadRecord, Record
from pipeline.ingest.documents.sniff import sniff
from tests.launching import process
from tests.pipeline.ingest.documents.raw_files import arrow, parquet, records
from tests.pipeline.ingest.dump import dump, large_dump, page, small_dump
from tests.pipeline.ingest.tars import tar
from tests.pipeline.preparing import Call, Prepare, contents, many_documents, small_disk, tiny

GOOD = b"".join(b'{"text": "A piece of news, number %d. It is short."}\n' % n for n in range(300))


@pytest.fixture
def prepare(make: Prepare, tmp_path: Path) -> Prepare:
    """The output of `prepare` for an input; checks that an error leaves no manifest."""

    def prepare(*inputs: object, corpus: str = "own", output: str = "out", code: int = 0) -> str:
        said = make("--corpus", corpus, "--input", *inputs, output=output, code=code)
        if code:
            assert said.startswith("error: ") and said.count("\n") == 1, said
            assert not (tmp_path / output / MANIFEST).exists()
        return said

    return prepare


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


NOISE = b"".join(b'{"text": "%s"}\n' % os.urandom(500).hex().encode() for _ in range(20))
TWICE = pa.table([["One."], ["Two."], ["3"]], names=["text", "text", "n"])
BAD = {
    "early.jsonl": (bytes(4096) + b"\n" + GOOD, "early.jsonl is binary"),
    "empty.jsonl": (b"", "empty.jsonl is empty"),
    "u.jsonl": (b'{"text": "a b."}\n{"text": "\xff"}\n', "u.jsonl:2"),
    "blank.jsonl": (b'{"text": ""}\n{"text": "  \\n"}\n', "no text"),
    "cut.gz": (gzip.compress(NOISE)[:-999], "cut.gz is truncated"),
    "plain.jsonl.gz": (b"\x1f\x8b" + GOOD, "plain.jsonl.gz is damaged"),
    "open.csv": (b'id,text\n1,"One, two."\n' + b"2,Good.\n" * 99 + b'3,"cut', "row of line 102 "),
    "twice.csv": (b"text,id,text\nOne.,1,Two.\n", "columns named 'text'"),
    "twice.parquet": (parquet(TWICE), "twice.parquet has 2 columns named 'text'"),
    "twice.arrow": (arrow(TWICE, "stream"), "twice.arrow has 2 columns named 'text'"),
    "ids.arrow": (arrow(TWICE.rename_columns(["id", "id", "text"]), "file"), "columns named 'id'"),
}


def test_a_bad_file_is_one_line_and_no_manifest(tmp_path: Path, prepare: Prepare) -> None:
    for name, (content, said) in BAD.items():
        path = write(tmp_path / name, content)
        assert said in prepare(path, output=f"out-{name}", code=2), name
    assert "prepared 300 documents" in prepare(write(path, GOOD), output=f"out-{name}")
    assert "nothing.jsonl" in prepare(tmp_path / "nothing.jsonl", code=2)
    # text that is not UTF-8 is named, with the command that converts it
    for name, text, encoding in (
        ("western.txt", "Die Größe des Hauses überrascht. « Déjà vu »\n\n" * 9, "cp1252"),
        ("western.jsonl", '{"text": "The “café” – ça va?"}\n' * 9, "cp1252"),
        ("western.csv", "id,text\n" + "1,Die Größe überrascht\n" * 9, "cp1252"),
        ("wide.txt", "Some text.\n" * 9, "utf-16"),
        ("russian.txt", "Это обычный русский текст для проверки.\n" * 99, "cp1251"),
    ):
        said = prepare(write(tmp_path / name, text.encode(encoding)), code=2).lower()
        name = {"cp1252": "windows-1252"}.get(encoding, encoding)
        assert f"iconv -f {name} -t utf-8" in said
    path = write(tmp_path / "pages.xml", small_dump().decode().encode("utf-16-le"))
    assert f"{path} is UTF-16 text" in prepare(path, corpus="wikipedia", code=2)


def test_entities_and_tags_in_json_are_reported(
    tmp_path: Path, prepare: Prepare, make: Prepare, call: Call
) -> None:
    """With the line of --map that undoes them."""
    marked = b"".join(
        b'{"text": "A piece %d of %s here. It is short."}\n' % (n, what)
        for n, what in enumerate((b"AT&amp;T", b"R&#38;D", b"<p>news</p>", b"a <br/> b") * 3)
    )
    path = write(tmp_path / "in.jsonl", GOOD + b'{"text": "If a < b, c > d & e; P&L;"}\n' + marked)
    for said in (prepare(path), call(inspect.main, path)):
        assert "12 with HTML" in said or "12 kept with HTML" in said
        [line] = re.findall(r"import html.*text\)\)", said)
    tidy = write(tmp_path / "tidy.py", line.encode())
    mapped = ("--map", f"{tidy}:tidy")
    said = make("--corpus", "own", "--input", path, *mapped, output="tidied")
    assert "HTML" not in said + call(inspect.main, path, *mapped)


def test_bad_records_among_good_ones_are_counted(tmp_path: Path, prepare: Prepare) -> None:
    """Text of another type, and a block of nuls that a file system has lost."""
    bad = b'{"text": 3}\n{"text": ["a"]}\n' + bytes(4096) + b"\n"
    printed = prepare(write(tmp_path / "in.jsonl", GOOD * 5 + bad + GOOD))
    assert "prepared 1,800 documents" in printed
    assert "dropped 2 text is not a string, 1 invalid JSON" in printed


LOST = b"A long text is lost with this record. " * 2000
ROWS = b"".join(b"A piece of news, number %d. It is short.;\n" % n for n in range(300))
LARGE_LOSSES = {
    "cut.jsonl": (b'{"text": "' + LOST + b"\n" + GOOD, "invalid JSON"),
    "list.jsonl.gz": (gzip.compress(GOOD + b'{"text": ["' + LOST + b'"]}\n'), "not a string"),
    "array.json": (b"[" + b",".join([*GOOD.splitlines(), b'{"t": "' + LOST + b'"}]']), "no text"),
    "rows.csv": (b"text;id\n" + ROWS + LOST + b"\n", "another number of values"),
    "utf-8.csv": (b"text;id\n" + ROWS + LOST + b"\xe9;\n", "invalid UTF-8"),
    "text.parquet": (
        parquet(pa.table({"text": pa.array([*ROWS.splitlines(), LOST + b"\xe9"], pa.binary())})),
        "invalid UTF-8",
    ),
    "files.tar": (
        tar({"bad.txt": LOST + b"\xe9"} | {f"{n}.txt": b"A text." for n in range(300)}),
        "invalid UTF-8",
    ),
}


@pytest.mark.parametrize("name", LARGE_LOSSES)
def test_unusable_records_are_judged_by_their_bytes_too(
    name: str, tmp_path: Path, prepare: Prepare
) -> None:
    """One record of 300, with most of the file's text."""
    content, reason = LARGE_LOSSES[name]
    path = write(tmp_path / name, content)
    said = prepare(path, code=2)
    assert reason in said and "--max-bad-fraction 0.01" in said
    said = prepare(path, "--max-bad-fraction", 0.99)
    assert "prepared 300 documents" in said and reason in said


def test_only_the_bad_line_that_is_printed_is_counted_from_the_start(
    tmp_path: Path, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a bad line in each piece of a file makes each piece read the file up to there."""
    few = b"".join(GOOD.splitlines(keepends=True)[:9])
    path = write(tmp_path / "torn.jsonl", (few + b"{bad\n") * 40)
    counted: list[int] = []

    def count(path: str, end: int) -> int:
        counted.append(end)
        return byte_blocks.count_lines(path, end)

    monkeypatch.setattr(where, "count_lines", count)
    monkeypatch.setattr("pipeline.prepare.SPLIT_BYTES", 3 * len(few))
    said = prepare(path, code=2)
    assert "torn.jsonl:10: invalid JSON (40 of 400 records" in said
    assert len(counted) <= 1


def test_a_line_of_200_mb(tmp_path: Path) -> None:
    """It is skipped and counted, and not held in memory; the file is sparse, for speed."""
    path = write(tmp_path / "long.jsonl", GOOD * 5 + b'{"text": "')
    with path.open("r+b") as file:
        file.seek(200_000_000, 2)
        file.write(b'"}\n' + GOOD)
    tracemalloc.start()
    found = [record for piece in cut(sniff(path, "own", "in"), 32 << 20) for record in read(piece)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6
    bad = [record for record in found if isinstance(record, BadRecord)]
    assert bad == [BadRecord("in:1501", "a line of over 64 MiB, not one object a line")]
    assert len({record.id for record in found if isinstance(record, Record)}) == 1800


def test_lines_that_are_too_long_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "MAX_LINE_BYTES", 40)
    texts = ["a" * size for size in (1, 28, 29, 30, 90, 29, 200, 200, 3)]
    lines = [b'{"text": "%s"}' % text.encode() for text in texts]
    expected: list[Record | BadRecord] = []
    position = 0
    for number, (line, text) in enumerate(zip(lines, texts, strict=True), 1):
        bad = BadRecord(f"in:{number}", "a line of over 0 MiB, not one object a line")
        expected.append(bad if len(line) > 40 else Record(f"in@{position}", "in", text))
        position += len(line) + 1
    for block, piece_bytes, end in product((1, 7, 64), (5, 33, 1000), (b"\n", b"")):
        monkeypatch.setattr(byte_blocks, "BLOCK_BYTES", block)
        monkeypatch.setattr(byte_blocks, "OVERRUN_BYTES", block)
        source = sniff(write(tmp_path / "in", b"\n".join(lines) + end), "own", "in")
        assert records(source, piece_bytes) == expected, (block, piece_bytes, end)


def test_folders_without_files_and_with_broken_links(tmp_path: Path, prepare: Prepare) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder / "empty.jsonl", b"")
    assert "no files" in prepare(folder, code=2)
    write(folder / "good.jsonl", GOOD)
    assert "prepared 300 documents" in prepare(folder)
    link = folder / "more"
    for target in (tmp_path / "gone", link):
        link.symlink_to(target)
        assert f"{link} is a broken link" in prepare(folder, output="other", code=2)
        link.unlink()


@pytest.mark.parametrize(
    ("corpus", "size", "fills"),
    [("own", 20_000, "out/.work"), ("wikipedia", 4_000, "tight/documents")],
)
def test_a_full_disk(
    corpus: str, size: int, fills: str, tmp_path: Path, prepare: Prepare,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """One line, no half-written file accepted, and the next run resumes."""
    path = tmp_path / "in"
    if corpus == "own":
        many_documents(path)
    else:
        large_dump(path, 700)
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path / "root"))
    prepare(path, corpus=corpus, output="whole")
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path / "tight"))
    with small_disk(size):
        error = prepare(path, corpus=corpus, code=2)
    assert f"cannot write {tmp_path / fills}" in error and "File too large" in error
    left = {file.name.rpartition(".")[2] for file in (tmp_path / fills).iterdir()}
    # the plan, and word runs of a part that has no marker, so that it is made again
    assert left <= {"lock", "json", "npz"}, left
    prepare(path, corpus=corpus)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def cells() -> bytes:
    """Parquet of 200 texts of 2 MB."""
    texts = [(f"Cell {n} says so again and again. " * 60_000)[: 2 << 20] for n in range(8)]
    stream = io.BytesIO()
    options = {"compression": "zstd", "use_dictionary": False, "row_group_size": 200}
    pq.write_table(pa.table({"text": texts * 25}), stream, **options)
    return stream.getvalue()


def bomb() -> bytes:
    """A zstd frame of 50 KB that holds a line of 1 GiB, after lines that are fine."""
    frame = zstandard.ZstdCompressor().compressobj()
    blocks = [frame.compress(GOOD + b'{"text": "')]
    blocks += [frame.compress(b"a" * (1 << 22)) for _ in range(256)]
    return b"".join([*blocks, frame.compress(b'"}\n'), frame.flush()])


SMILE = "😀".encode()
"""Makes the text that it ends four bytes wide in memory."""
HUGE: dict[str, Callable[[], bytes]] = {
    "word.jsonl": lambda: GOOD + b'{"text": "%s"}\n' % (b"ab" * 20_000_000),
    "wide.jsonl": lambda: GOOD + b'{"text": "%s"}\n' % (b"So it says. " * 5_000_000 + SMILE),
    "cells.parquet": cells,
    "bomb.jsonl.zst": bomb,
    "values.jsonl": lambda: (
        GOOD + b'{"text": "a", "more": [%s]}\n' % b",".join([b'{"a":1}'] * 7_000_000)
    ),
    "member.tar": lambda: tar({"a.txt": b"So it says. \n" * 9_000_000 + SMILE}),
    "book.txt": lambda: b"It was night and con-\ntemplated by so few of us.\n" * 2_300_000 + SMILE,
    "page.xml": lambda: dump(
        [page(1, "A", "It says so. " * 10_000_000), page(2, "B", "Some text. " * 99)]
    ),
    "whole.txt": lambda: b"A line of text in a large file.\n" * 4_000_000,
}
MEASURED = """
from pathlib import Path
from pipeline import prepare
prepare.main()
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""
"""With one worker, the process does the work itself; it prints its largest memory in KB."""


@pytest.mark.slow
@pytest.mark.parametrize("name", HUGE)
def test_a_worker_needs_at_most_a_gigabyte(name: str, tmp_path: Path, tiny_tokenizer: Path) -> None:
    path = write(tmp_path / name, HUGE[name]())
    kind = {"whole.txt": "file", "book.txt": "book"}.get(name)
    options = ["--plain-text", kind] if kind else []
    done = process.run(
        [sys.executable, "-c", MEASURED, "--corpus", path, "--workers", 1, *options,
         *tiny(tiny_tokenizer, tmp_path / "out")],
        cold=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < 1_000_000, done.stdout

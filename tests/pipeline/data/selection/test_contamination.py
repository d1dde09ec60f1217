"""Evaluation files of every format give the same runs of words; other files are refused."""

import bz2
import gzip
import json
import lzma
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zstandard

from pipeline.base.errors import DataError
from pipeline.data.selection.contamination import CHUNK_CHARACTERS, RUN_WORDS, Evaluation
from pipeline.data.selection.minhash import have_run, runs
from tests.benchmarks.planted import document
from tests.golden.formats import zipped
from tests.pipeline.data.selection.conftest import arrays
from tests.pipeline.ingest.documents.raw_files import arrow, parquet
from tests.pipeline.ingest.files import put
from tests.pipeline.ingest.tars import tar

FIRST = "The quick brown fox jumps over the lazy dog and then it sleeps until next morning"
SECOND = "Which of these animals, asked Mr. O'Neill, was it that slept all day in the barn?"
PLANTED = [" ".join(document(np.random.default_rng(number), 20)) for number in range(101)]


def known(evaluation: Evaluation, *texts: str) -> list[bool]:
    return have_run(*arrays(texts), RUN_WORDS, evaluation.table).tolist()


def read(path: Path, content: str | bytes) -> Evaluation:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return Evaluation.read([str(path)])


def squad(first: str, second: str) -> str:
    question = {"question": second, "id": "1", "answers": [{"text": "dog", "answer_start": 1}]}
    data = [{"title": "Dogs", "paragraphs": [{"context": first, "qas": [question]}]}]
    return json.dumps({"version": "v2.0", "data": data}, indent=1)


SHAPES = {
    "dev-v2.0.json": (squad(FIRST, SECOND), "d38e1a370d2e713f"),
    "dev.tsv": (
        f"index\tsentence1\tsentence2\tlabel\n7\t{FIRST}\t{SECOND}\t1\n", "299892f39d39effd"
    ),
    "dev.jsonl": (
        f"{json.dumps({'premise': FIRST})}\n{json.dumps({'a': [SECOND], 'label': 1})}\n",
        "d38e1a370d2e713f",
    ),
    "notes.txt": (f"[1] {FIRST}\n\n{SECOND}\n", "8c2d70e65f04bc43"),
}  # fmt: skip
"""Content and mark. Marks were computed before tables were read; they enter fingerprints, so they
must not change."""


@pytest.mark.parametrize("name", SHAPES)
def test_each_kind_of_file(tmp_path: Path, name: str) -> None:
    content, mark = SHAPES[name]
    found = read(tmp_path / name, b"\xef\xbb\xbf" + content.encode())
    held = known(
        found,
        f"He wrote: “{FIRST.upper()}”",
        " ".join(FIRST.split()[:13]),
        " ".join(FIRST.split()[:12]) + " soon",
        "said to no one: " + SECOND.replace(" ", "\n"),
        "nothing of the sort " * 20,
    )
    assert held == [True, True, False, True, False]
    assert found.mark == read(tmp_path / f"{name}.gz", gzip.compress(content.encode())).mark == mark


# --- Every format gives the same runs as JSON lines


def unusual_columns() -> pa.Table:
    """Run-end encoded, a union, and JSON as an extension type; Parquet can hold only the last."""
    ends = pa.array([100, 101], pa.int32())
    some = pa.RunEndEncodedArray.from_arrays(ends, pa.array([PLANTED[0], PLANTED[1]]))
    which, numbers = pa.array([0] * 101, pa.int8()), pa.array(range(101))
    more = pa.UnionArray.from_sparse(which, [pa.array(PLANTED[2:50] + [""] * 53), numbers])
    rest = pa.array([json.dumps(text) for text in PLANTED[50:] + [""] * 50], pa.json_())
    return pa.table({"some": some, "more": more, "rest": rest})


LINES = b"".join(json.dumps({"id": 1, "text": text}).encode() + b"\n" for text in PLANTED)
TABLE = pa.table({"id": range(101), "text": PLANTED})
ENCODED = {
    "json lines": LINES,
    "json": json.dumps(PLANTED).encode(),
    "json, printed": json.dumps([{"a": text, "b": float("nan")} for text in PLANTED], indent=1)
    .encode(),
    "json lines, with NaN": LINES.replace(b"1", b"NaN", 1),
    "gz": gzip.compress(LINES), "zst": zstandard.compress(LINES),
    "xz": lzma.compress(LINES), "bz2": bz2.compress(LINES),
    "snappy Parquet": parquet(TABLE, 40),
    "zstd Parquet": parquet(TABLE, 40, "zstd"),
    "plain Parquet": parquet(TABLE, 40, "none"),
    "Parquet, compressed as a whole": gzip.compress(parquet(TABLE, 40)),
    "Arrow file": arrow(TABLE, "file", 40),
    "Arrow file, compressed as a whole": bz2.compress(arrow(TABLE, "file", 40)),
    "Arrow stream": arrow(TABLE, "stream", 40),
    "Arrow stream, compressed as a whole": zstandard.compress(arrow(TABLE, "stream", 40)),
    "Arrow stream of unusual columns": arrow(unusual_columns(), "stream", 40),
}  # fmt: skip
EXPECTED = "546d8fed893eeacc"
"""Computed from `json lines` before tables were read."""


@pytest.mark.parametrize("name", ENCODED)
def test_each_format_and_compression(tmp_path: Path, name: str) -> None:
    """Detected by content; the file name gives no hint."""
    found = read(tmp_path / "dev", ENCODED[name])
    assert sum(known(found, *(f"Before it {text} and after" for text in PLANTED))) == 101
    assert found.mark == EXPECTED


COLUMNS: dict[str, tuple[Any, Callable[[str], object]]] = {
    "string": (pa.string(), str),
    "large string": (pa.large_string(), str),
    "string view": (pa.string_view(), str),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), str),
    "list": (pa.list_(pa.string()), lambda text: ["a", text, None]),
    "large list": (pa.large_list(pa.large_string()), lambda text: [text]),
    "pairs": (pa.list_(pa.string(), 2), lambda text: [text, "b"]),
    "answers of SQuAD": (
        pa.struct({"text": pa.list_(pa.string()), "answer_start": pa.list_(pa.int32())}),
        lambda text: {"text": [text], "answer_start": [1]},
    ),
    "list of structs": (
        pa.list_(pa.struct({"a": pa.struct({"b": pa.dictionary(pa.int8(), pa.string())})})),
        lambda text: [{"a": None}, {"a": {"b": text}}],
    ),
    "values of a map": (pa.map_(pa.string(), pa.string()), lambda text: [("a", text), ("b", None)]),
    "keys of a map": (pa.map_(pa.string(), pa.int32()), lambda text: [(text, 1)]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_strings_anywhere_in_a_row(tmp_path: Path, name: str) -> None:
    kind, value = COLUMNS[name]
    values = pa.array([None, *map(value, PLANTED)], kind)
    table = pa.table({"id": range(102), "image": [b"\0\xff"] * 102, "deep": values})
    for content in (parquet(table, 40), arrow(table, "stream", 40)):
        assert read(tmp_path / "dev", content).mark == EXPECTED


def test_strings_are_cleaned_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CHUNK_CHARACTERS > 1 << 20
    monkeypatch.setattr("pipeline.data.selection.contamination.CHUNK_CHARACTERS", 300)
    assert read(tmp_path / "dev", ENCODED["snappy Parquet"]).mark == EXPECTED


# --- Text that looks like JSON, and broken JSON


@pytest.mark.parametrize("content", [
    f"[1] {FIRST}\n{SECOND}\n",
    f"[1]\n{FIRST}\n[2]\n{SECOND}\n",
    f"[CLS] {FIRST}\t1\n{SECOND}\t0\n",
    f'["Hello," he said.]\n{FIRST}\n{SECOND}\n',
    f"{{{{Infobox}}}}\n{FIRST}\n{SECOND}\n",
    f"{{note: see below}}\n{FIRST}\n{SECOND}\n",
    f'{{"Quoted"}} {FIRST}\n{SECOND}\n',
    f"{{}}\n{FIRST}\n{SECOND}\n",
])  # fmt: skip
def test_text_that_starts_like_json(tmp_path: Path, content: str) -> None:
    found = read(tmp_path / "dev", content)
    assert known(found, FIRST, SECOND) == [True, True]
    assert found.mark == read(tmp_path / "dev.txt", f"-{content}").mark


def test_json_in_a_table_in_lines_of_strings_and_deeply_nested(tmp_path: Path) -> None:
    """Lines of strings only if the name says so: a CSV table with one quoted column looks alike."""
    table = f'{{"id": 1}}\t{FIRST}\n{{"id": 2}}\t{SECOND}\n'
    assert known(read(tmp_path / "dev.tsv", table), FIRST, SECOND) == [True, True]
    lines = "".join(json.dumps(f"“{text}”") + "\n" for text in PLANTED)
    assert read(tmp_path / "dev.jsonl", lines).mark == EXPECTED
    nested = "[" * 1000 + json.dumps(FIRST) + "]" * 1000
    assert known(read(tmp_path / "dev.json", nested), FIRST) == [True]


GOOD = json.dumps({"text": FIRST})
BROKEN = {
    "cut line": ("dev", f'{GOOD}\n\n{GOOD}\n{{"text": "The quick', 4),
    "first line": ("dev", f'{{"text": "The quick\n{GOOD}\n{GOOD}\n', 1),
    "mostly broken": ("dev", f"{GOOD}\r\nThe quick\r\nbrown fox\r\njumps", 2),
    "text after an object": ("dev.txt", f"{GOOD}\n{GOOD} and more\n", 2),
    "arrays": ("dev", f'["{FIRST}"]\n["{SECOND}"\n["{SECOND}"]\n', 2),
    "named TSV": ("dev.tsv", f"{GOOD}\n{GOOD}\nbroken\n", 3),
    "a cut document": ("dev", squad(FIRST, SECOND)[:-20], 20),
    "a cut document on one line": ("dev", json.dumps([{"text": FIRST}])[:-3], 1),
    "a dict of Python": ("dev", "{'text': 'The quick'}\n", 1),
    "a web page": ("dev.json", f"<html>{FIRST}</html>\n", 1),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_json_is_an_error_with_its_line(tmp_path: Path, name: str) -> None:
    file, content, line = BROKEN[name]
    with pytest.raises(DataError, match=f"{file}: line {line} is not valid JSON"):
        read(tmp_path / file, content)


# --- Refusals


def not_utf8() -> pa.Table:
    ends = pa.py_buffer(np.array([0, 1, 2], np.int32).tobytes())
    return pa.table({"text": pa.StringArray.from_buffers(2, ends, pa.py_buffer(b"a\xff"))})


TAR = tar({"dev.jsonl": GOOD.encode()})
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
WARC = f"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: 9\r\n\r\n{FIRST}".encode()
REFUSED = {
    "zip": ("dev.zip", zipped({"dev.jsonl": GOOD.encode() * 9}), "is a zip archive"),
    "tar": ("dev.tar", TAR, "is a tar archive"),
    "tar.gz": ("dev.tar.gz", gzip.compress(TAR), "is a tar archive"),
    "tar.xz": ("dev.tar.xz", lzma.compress(TAR), "is a tar archive"),
    "tar.zst": ("dev", zstandard.compress(TAR), "is a tar archive"),
    "WARC": ("dev.warc", WARC, "is a WARC file"),
    "WARC, compressed": ("dev.warc.gz", gzip.compress(WARC), "is a WARC file"),
    "dump": ("wiki.xml", f"<mediawiki><page>{FIRST}".encode(), "is a MediaWiki dump"),
    "pickle": ("dev.pkl", pickle.dumps({"text": FIRST}), "is binary"),
    "pickle of text": ("dev.pkl", pickle.dumps([FIRST], 0), "is a pickle"),
    "PDF": ("paper.pdf", b"%PDF-1.4\n" + FIRST.encode(), "is a PDF document"),
    "safetensors": ("a", b"\x40" + b"\0" * 7 + b'{"text": "' + b"a" * 99, "is binary"),
    "PNG": ("a.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is binary"),
    "JPEG": ("a.jpg", b"\xff\xd8\xff\xe1\x02\x10" + b"ab" * 99, "is not UTF-8 text"),
    "UTF-16": ("dev.tsv", FIRST.encode("utf-16"), "is UTF-16 text"),
    "UTF-16 not of English": ("dev.tsv", "\n中文。\n".encode("utf-16-le"), "is UTF-16 text"),
    "UTF-16 without its mark": ("dev.tsv", FIRST.encode("utf-16-le"), "is UTF-16 text"),
    "KOI8-R": ("dev.tsv", f"{FIRST[:20]}\n{'слово ' * 20}".encode("koi8-r"), "is not UTF-8 text"),
    "NUL in text": ("dev.txt", FIRST.encode() * 9999 + b"\0", "is binary"),
    "NUL after JSON": ("dev.json", GOOD.encode() + b"\0" * 99, "is binary"),
    "twice compressed": ("dev.gz", gzip.compress(gzip.compress(LFS)), "is compressed twice"),
    "pointer": ("dev.parquet", LFS, "is a Git LFS pointer.*git lfs pull"),
    "web page": ("dev.parquet", f"<html>{FIRST}</html>".encode(), "is not Parquet"),
    "Parquet, not UTF-8": ("dev.parquet", parquet(not_utf8()), ".*Invalid UTF8"),
    "Parquet, cut": ("dev.parquet", parquet(TABLE, 40)[:-99], "is truncated or damaged"),
    "Arrow, cut": ("dev.arrow", arrow(TABLE, "stream", 40)[:-999], "is truncated"),
    "gz, cut": ("dev.jsonl.gz", gzip.compress(GOOD.encode())[:-5], "is truncated"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_unreadable_files_are_refused(tmp_path: Path, name: str) -> None:
    """The error is one line with the path and a remedy, even if another file is fine."""
    file, content, reason = REFUSED[name]
    (tmp_path / "good.jsonl").write_text(GOOD)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError, match=f"{file} {reason}") as error:
        Evaluation.read([str(tmp_path)])
    message = str(error.value)
    assert message.startswith(f"{tmp_path / file} ") and "\n" not in message
    assert any(advice in message for advice in ("convert it", "fetch it again", "git lfs pull"))


def test_older_text_is_read_with_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A data set's old.htm need not be excluded, and accents match."""
    text, path = f"Café “naïve”\n{FIRST} à la carte", tmp_path / "old.htm"
    path.write_bytes(text.encode("cp1252"))
    found = Evaluation.read([str(tmp_path)])
    assert "old.htm is not UTF-8 (line 1); read as Windows-1252" in capsys.readouterr().out
    assert found.mark == read(path, text).mark


# --- Several files, and the summary


def test_several_files_and_their_directory(tmp_path: Path) -> None:
    files = [tmp_path / task / "dev.tsv" for task in ("RTE", "MRPC")]
    for file, text in zip(files, (FIRST, SECOND)):
        file.parent.mkdir()
        file.write_text(text)
    both = Evaluation.read([str(tmp_path)])
    assert Evaluation.read([*map(str, files)]).mark == both.mark
    assert known(both, FIRST, SECOND) == [True, True]
    expected = np.unique(runs(*arrays([FIRST, SECOND]), RUN_WORDS))
    assert sorted(set(both.table.tolist()) - {0}) == expected.tolist()


def test_a_folder_of_many_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The summary counts files by format and names those without a run."""
    texts = pa.table({"id": range(3), "text": [FIRST, SECOND, "short"]})
    (tmp_path / "a.parquet").write_bytes(parquet(texts))
    (tmp_path / "b.parquet").write_bytes(parquet(pa.table({"id": range(9)})))
    (tmp_path / "c.jsonl").write_text(GOOD)
    (tmp_path / "d.arrow").write_bytes(ENCODED["Arrow stream"])
    (tmp_path / "dataset_info.json").write_text(json.dumps({"name": "dogs"}, indent=2))
    (tmp_path / "about.md").write_text(f"# Dogs\n\n{FIRST}\n")
    (tmp_path / ".hidden.png").write_bytes(b"\x89PNG\0")
    assert all(known(Evaluation.read([str(tmp_path)]), FIRST, SECOND, PLANTED[-1]))
    said = capsys.readouterr().out
    assert "818 runs of 13 words in 6 file(s): 1 Arrow (101 string(s)), 2 JSON (2 " in said
    assert "2 Parquet (3 string(s)), 1 text\n" in said
    assert f"match nothing: {tmp_path / 'b.parquet'}, {tmp_path / 'dataset_info.json'}\n" in said
    for number in range(20):
        (tmp_path / f"z{number}.txt").write_text("short")
    Evaluation.read([str(tmp_path)])
    assert ", and 12 more\n" in capsys.readouterr().out


def test_a_folder_s_licence_drops_no_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor do its other files that are skipped in every folder; one that is named is read."""
    put(tmp_path / "dev.tsv", FIRST)
    for name in ("LICENSE", "README.md", "Thumbs.db", ".git/notes", "dev.tsv~"):
        put(tmp_path / name, SECOND)
    assert known(Evaluation.read([str(tmp_path)]), FIRST, SECOND) == [True, False]
    said = capsys.readouterr().out
    assert " 5 file(s) and folder(s) are skipped" in said and "LICENSE" in said
    named = Evaluation.read([str(tmp_path), str(tmp_path / "LICENSE")])
    assert known(named, FIRST, SECOND) == [True, True]


def test_no_files_and_files_without_a_run(tmp_path: Path) -> None:
    assert Evaluation.read([]).mark == "" and not len(Evaluation.read([]).table)
    with pytest.raises(DataError, match="no text of 13 words in 1 file"):
        read(tmp_path / "short.txt", "only a few words")
    with pytest.raises(DataError, match="does not exist"):
        Evaluation.read([str(tmp_path / "none.txt")])

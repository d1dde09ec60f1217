"""Raw files to records: every format and compression, ranges, bad records, bad files."""

import gzip
import io
import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from pipeline.data.corpora.sources import SAMPLE_FILES
from pipeline.data.documents.read import cut, read
from pipeline.data.documents.records import BadRecord, Piece, Record, Source
from pipeline.data.documents.sniff import sniff
from pipeline.errors import DataError

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    "gz": gzip.compress,
    "zst": zstandard.ZstdCompressor().compress,
    "xz": lzma.compress,
}
LINES = b'{"text": "One.", "url": "http://a/1"}\n{"text": "Two."}\n'
RECORDS = [Record("news@0", "http://a/1", "One."), Record("news@38", "news", "Two.")]


def source(folder: Path, content: bytes, **options: str | bool) -> Source:
    path = folder / "file"
    path.write_bytes(content)
    return sniff(path, "corpus", "news", **options)  # type: ignore[arg-type]


def records(source: Source, piece_bytes: int = 1 << 20) -> list[Record | BadRecord]:
    return [record for piece in cut(source, piece_bytes) for record in read(piece)]


def parquet(table: pa.Table, rows: int = 2) -> bytes:
    stream = io.BytesIO()
    pq.write_table(table, stream, row_group_size=rows)
    return stream.getvalue()


# --- formats


@pytest.mark.parametrize("compression", COMPRESS)
def test_json_lines(tmp_path: Path, compression: str) -> None:
    content = COMPRESS[compression](LINES)
    found = source(tmp_path, content, licence="CC BY 2.5")
    assert found == Source(
        corpus="corpus", path=str(tmp_path / "file"), name="news", size=len(content),
        format="jsonl", compression=compression,  # type: ignore[arg-type]
        text_field="", plain_text="file",
        licence="CC BY 2.5",
    )  # fmt: skip
    assert records(found) == RECORDS


@pytest.mark.parametrize("compression", COMPRESS)
def test_text_file_is_one_document(tmp_path: Path, compression: str) -> None:
    found = source(tmp_path, COMPRESS[compression](b"\xef\xbb\xbfOne.\r\n\r\nTwo.\r\n"))
    assert (found.format, found.compression) == ("text", compression)
    assert records(found, 1) == [Record("news@0", "news", "One.\r\n\r\nTwo.")]


@pytest.mark.parametrize("compression", COMPRESS)
def test_text_with_blank_lines_between_documents(tmp_path: Path, compression: str) -> None:
    text = b"\n\nOne.\nMore.\n \t\n\nTwo.\n"
    found = source(tmp_path, COMPRESS[compression](text), plain_text="blank_lines")
    assert records(found) == [
        Record("news@2", "news", "One.\nMore."), Record("news@17", "news", "Two."),
    ]  # fmt: skip


def test_parquet(tmp_path: Path) -> None:
    table = pa.table({"url": ["u", None, "w", ""], "text": ["One.", "Two.", None, "Four."]})
    found = source(tmp_path, parquet(table))
    assert (found.format, found.compression) == ("parquet", "")
    assert [(piece.start, piece.stop) for piece in cut(found, 1)] == [(0, 1), (1, 2)]
    assert [(piece.start, piece.stop) for piece in cut(found, 1 << 20)] == [(0, 2)]
    for piece_bytes in (1, 1 << 20):
        assert records(found, piece_bytes) == [
            Record("news@0", "u", "One."),
            Record("news@1", "news", "Two."),
            BadRecord("news:3", "null text"),
            Record("news@3", "news", "Four."),
        ]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary("int32", "string")])
def test_parquet_kinds_of_strings(tmp_path: Path, kind: pa.DataType) -> None:
    table = pa.table({"body": pa.array(["One."]).cast(kind), "id": [7]})
    assert records(source(tmp_path, parquet(table))) == [Record("news@0", "7", "One.")]


def test_parquet_value_that_is_not_utf8(tmp_path: Path) -> None:
    texts = pa.array([b"One.", b"caf\xe9", b"Three."]).view(pa.string())
    assert records(source(tmp_path, parquet(pa.table({"text": texts})))) == [
        Record("news@0", "news", "One."),
        BadRecord("news:2", "invalid UTF-8"),
        Record("news@2", "news", "Three."),
    ]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"story": ["One."], "n": [1]}, "no column text or body or content, only story, n"),
        ({"text": [1]}, "column text holds int64, not strings"),
    ],
)
def test_parquet_without_a_text_column(tmp_path: Path, table: dict, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(DataError, match=message):
        source(tmp_path, parquet(pa.table(table)))
    assert source(tmp_path, parquet(pa.table({"story": ["One."]})), text_field="story")


def test_format_by_content_not_suffix(tmp_path: Path) -> None:
    (tmp_path / "wiki_00").write_bytes(b'\n {"id": "12", "url": "u", "text": "One."}')
    assert sniff(tmp_path / "wiki_00", "c", "n").format == "jsonl"
    (tmp_path / "a.txt.gz").write_bytes(b'{"text": "One."}')
    assert sniff(tmp_path / "a.txt.gz", "c", "n").format == "jsonl"
    (tmp_path / "a.csv").write_bytes(b'{"text": "One."}')
    assert sniff(tmp_path / "a.csv", "c", "n").format == "jsonl"


@pytest.mark.parametrize(
    "damaged",
    [b"# exported 2020", b"null", b'{"text": "cut o', b'{"text": "cut",', b'{"text":', b"\xc3!",
     b'["a", "b"]', b'"a"', b"{{x}}"],
)  # fmt: skip
@pytest.mark.parametrize("final", [b"\n", b""])
def test_a_damaged_first_line_is_a_bad_record(tmp_path: Path, damaged: bytes, final: bytes) -> None:
    content = damaged + b'\n{"text": "One."}\n{"text": "Two."}' + final
    bad, *good = records(source(tmp_path, content))
    assert isinstance(bad, BadRecord)
    assert bad.where == "news:1"
    assert [record.text for record in good if isinstance(record, Record)] == ["One.", "Two."]


def test_damaged_lines_before_a_record_longer_than_the_head(tmp_path: Path) -> None:
    long = b'{"text": "' + b"word " * 20_000 + b'"}\n'
    assert source(tmp_path, b"# exported\n" + long).format == "jsonl"
    assert source(tmp_path, long).format == "jsonl"
    assert source(tmp_path, b"\xef\xbb\xbf" + long).format == "jsonl"


def test_a_byte_order_mark_before_any_line(tmp_path: Path) -> None:
    bom = b"\xef\xbb\xbf"
    for before in (b"\n", b" \r\n\n", bom + b"\n"):
        content = before + bom + b'{"text": "One."}\n' + bom + b"\n" + bom + b'{"text": "Two."}'
        found = records(source(tmp_path, content))
        assert [record.text for record in found if isinstance(record, Record)] == ["One.", "Two."]
        assert len(found) == 2


SPEECH = b'"Where?"\n\n"There!"\n\nHe looked.\n\n"Indeed."\n'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("file", b'["One."]\n["Two.", 2]\n', "seems to be JSON lines of arrays or strings"),
        ("file", b'"One."\n"Two."\n\n"Three."', "seems to be JSON lines of arrays or strings"),
        ("a.json", b"One.", r"seems to be JSON, but no line is an object \(it is a .json file\)"),
        ("a.jsonl.zst", b"One.", "seems to be JSON, but no line is an object"),
        ("a.NDJSON.gz", b"[1]\nOne.\n2", "seems to be JSON, but no line is an object"),
        ("a.csv", b"id,text\n1,One.\n", r"seems to be a table \(it is a .csv file\)"),
        ("a.tsv.xz", b"id\ttext\n1\tOne.\n", "seems to be a table"),
    ],
)
def test_data_that_would_be_read_as_text(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{path} {message}.*; convert it .*--plain-text"):
        sniff(path, "corpus", "news")
    assert sniff(path, "corpus", "news", forced_text=True).format == "text"
    path.rename(tmp_path / "blob")  # as in a cache, where the link has the name
    with pytest.raises(DataError, match=message):
        sniff(tmp_path / "blob", "corpus", name)


@pytest.mark.parametrize(
    "text", [SPEECH, b"[1]\nOne.\nTwo.\n", b"{{Infobox}}\n", b"{| class\n", b"[[Link]] one.\n"]
)
def test_text_that_is_not_data(tmp_path: Path, text: bytes) -> None:
    assert source(tmp_path, text).format == "text"


def test_text_with_an_example_of_json_can_be_forced(tmp_path: Path) -> None:
    text = b'Such as\n{"a": 1}\nis called an object.\n'
    assert source(tmp_path, text).format == "jsonl"
    assert source(tmp_path, text, forced_text=True).format == "text"
    assert source(tmp_path, LINES, forced_text=True).format == "jsonl"


@pytest.mark.parametrize("size", [1, 5000])
@pytest.mark.parametrize("indent", [0, 2])
def test_json_over_several_lines(tmp_path: Path, size: int, indent: int) -> None:
    documents = [{"text": f"\u00e9 {n}.", "n": [n, False]} for n in range(size)]
    for value, shape in (
        ({"documents": documents}, "one JSON object over several lines, not one a line"),
        (documents, "one JSON array"),
        ([[n, n] for n in range(size)], "one JSON array"),
    ):
        content = json.dumps(value, indent=indent, ensure_ascii=False).encode()
        for whole in (content, b"\xef\xbb\xbf\n" + content, content + b"\n" + content):
            for forced_text in (False, True):
                with pytest.raises(DataError, match=f"is {shape}"):
                    source(tmp_path, whole, forced_text=forced_text)
    with pytest.raises(DataError, match="one JSON object over several lines"):
        source(tmp_path, b'{"documents": [\n{"text": "a"},\n{"text": "b"}\n]}')


def test_head_is_cut_anywhere_in_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = json.dumps({"a": [1.5e3, True, None, "\u00e9\n\\"], "b": {"c": "d"}}, indent=1)
    for size in range(12, len(content)):
        monkeypatch.setattr("pipeline.data.documents.sniff.HEAD_BYTES", size)
        with pytest.raises(DataError, match="one JSON object over several lines"):
            source(tmp_path, content.encode())


def test_json_that_python_cannot_parse(tmp_path: Path) -> None:
    assert source(tmp_path, b"[" * 100_000).format == "text"
    assert source(tmp_path, b"[" + b"9" * 5000 + b"] bottles.").format == "text"
    nested = b'{"a": NaN, "b": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    assert records(source(tmp_path, LINES + nested)) == [
        *RECORDS,
        BadRecord("news:3", "invalid JSON"),
    ]


def test_several_members_frames_and_streams(tmp_path: Path) -> None:
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size"  # as pzstd writes
    for compression, before in (("gz", b""), ("zst", skippable), ("zst", b""), ("xz", b"")):
        parts = [COMPRESS[compression](part) for part in (LINES[:20], LINES[20:], b"")]
        assert records(source(tmp_path, before + b"".join(parts))) == RECORDS


# --- fields


@pytest.mark.parametrize(
    ("line", "text", "origin"),
    [
        ('{"body": "B", "content": "C"}', "B", "news"),
        ('{"text": null, "content": "C"}', "C", "news"),
        ('{"text": "", "body": "B"}', "", "news"),
        ('{"text": "T", "path": "p", "id": "i"}', "T", "p"),
        ('{"text": "T", "id": 12}', "T", "12"),
        ('{"text": "T", "id": "i", "metadata": {"url": "m"}}', "T", "m"),
        ('{"text": "T", "url": "u", "metadata": {"url": "m"}}', "T", "u"),
        ('{"text": "caf\\u00e9 \\ud83d\\ude42 <mask>"}', "café 🙂 <mask>", "news"),
    ],
)
def test_fields(tmp_path: Path, line: str, text: str, origin: str) -> None:
    assert records(source(tmp_path, line.encode())) == [Record("news@0", origin, text)]


def test_named_text_field(tmp_path: Path) -> None:
    found = source(tmp_path, b'{"text": "T", "story": "S"}\n{"text": "T"}', text_field="story")
    assert records(found) == [Record("news@0", "news", "S"), BadRecord("news:2", "no text field")]


@pytest.mark.parametrize(
    ("line", "text", "origin"),
    [
        ('{"text": "T", "score": NaN}', "T", "news"),
        ('{"text": "T", "score": [-Infinity, {"a": Infinity}]}', "T", "news"),
        ('{"text": "NaN \\ud83d\\ude42", "url": NaN, "id": 3}', "NaN 🙂", "3"),
        ('{"text": NaN, "content": "C"}', "C", "news"),
    ],
)
def test_constants_that_python_writes(tmp_path: Path, line: str, text: str, origin: str) -> None:
    assert records(source(tmp_path, line.encode())) == [Record("news@0", origin, text)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "NaN}', "invalid JSON"),
        (b'{"text": "T", "score": NaN', "invalid JSON"),
        (b'{"text": "T", "score": nan}', "invalid JSON"),
        (b'{"text": "T", "score": -NaN}', "invalid JSON"),
        (b'{"text": "\\ud800", "score": NaN}', "invalid JSON"),
        (b'{"text": "T", "a\\udc00": NaN}', "invalid JSON"),
        (b'{"text": "caf\xe9", "score": NaN}', "invalid UTF-8"),
        (b'{"text": "T", "score": NaN, "n": ' + b"9" * 5000 + b"}", "invalid JSON"),
        (b'{"text": NaN}', "null text"),
        (b"NaN", "not a JSON object"),
    ],
)
def test_constants_do_not_excuse_the_rest(tmp_path: Path, line: bytes, reason: str) -> None:
    found = records(source(tmp_path, LINES + line))
    assert found == [*RECORDS, BadRecord("news:3", reason)]


# --- bad records

BAD_LINES = [
    (b'{"text": "One."}', None),
    (b'{"text": "One.', "invalid JSON"),
    (b"", None),
    (b"  \r", None),
    (b'{"title": "x"}', "no text field"),
    (b'{"text": null}', "null text"),
    (b'{"text": 5}', "text is not a string"),
    (b'["text"]', "not a JSON object"),
    (b'{"text": "caf\xe9"}', "invalid UTF-8"),
    (b'{"text": "\\ud800"}', "invalid JSON"),
    (b'{"text": "Last."}', None),
]


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("piece_bytes", [1, 7, 1000])
def test_bad_records_are_named_by_line_and_reading_goes_on(
    tmp_path: Path, compression: str, piece_bytes: int
) -> None:
    found = source(tmp_path, COMPRESS[compression](b"\n".join(line for line, _ in BAD_LINES)))
    got = records(found, piece_bytes)
    assert [record for record in got if isinstance(record, BadRecord)] == [
        BadRecord(f"news:{number}", reason)
        for number, (_, reason) in enumerate(BAD_LINES, 1) if reason
    ]  # fmt: skip
    assert [record.text for record in got if isinstance(record, Record)] == ["One.", "Last."]


def test_bad_text_is_named_by_its_line(tmp_path: Path) -> None:
    text = b"One.\n\n\nTwo,\ncaf\xe9.\n\nThree.\n\n\xff"
    for piece_bytes in (1, 5, 1000):
        found = source(tmp_path, text, plain_text="blank_lines")
        assert records(found, piece_bytes) == [
            Record("news@0", "news", "One."),
            BadRecord("news:5", "invalid UTF-8"),
            Record("news@19", "news", "Three."),
            BadRecord("news:9", "invalid UTF-8"),
        ]
    assert records(source(tmp_path, text)) == [BadRecord("news:5", "invalid UTF-8")]


# --- pieces

JSON_FILE = b'{"text": "One."}\n\n{"text": "Two."}\n \n{"bad\n{"text": "Three."}\n'
TEXT_FILE = b"One.\n\nTwo,\ntwo.\n \n\n\t\n  Three.\nThree.\n\n"


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
@pytest.mark.parametrize("end", ["as it is", "no final newline"])
@pytest.mark.parametrize("content", [JSON_FILE, TEXT_FILE, b"\n\n" + TEXT_FILE])
@pytest.mark.parametrize("block", [1, 3, 1 << 22])
def test_ranges_give_each_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    content: bytes, end: str, newline: bytes, bom: bytes, block: int,
) -> None:  # fmt: skip
    content = bom + content.replace(b"\n", newline)
    found = source(tmp_path, content if end == "as it is" else content.rstrip(),
                   plain_text="blank_lines")  # fmt: skip
    whole = records(found)
    texts = [record.text for record in whole if isinstance(record, Record)]
    assert [text.split()[0].strip(".,") for text in texts] == ["One", "Two", "Three"]
    monkeypatch.setattr("pipeline.data.documents.byte_blocks.BLOCK_BYTES", block)
    monkeypatch.setattr("pipeline.data.documents.byte_blocks.OVERRUN_BYTES", min(block, 4))
    for piece_bytes in range(1, found.size + 2):
        assert records(found, piece_bytes) == whole
    for record in whole:  # and it is the piece in which the record begins
        if isinstance(record, Record):
            begin = int(record.id.split("@")[1])
            assert list(read(Piece(found, begin, begin + 1, 1))) == [record]


def test_what_cannot_be_cut_is_one_piece(tmp_path: Path) -> None:
    for found in (source(tmp_path, gzip.compress(LINES)), source(tmp_path, b"One.\n\nTwo.")):
        assert cut(found, 1) == [Piece(found, 0, found.size, found.size)]
    found = source(tmp_path, LINES)
    assert len(LINES) == 55
    assert cut(found, 40) == [Piece(found, 0, 40, 40), Piece(found, 40, 55, 15)]


def test_bytes_of_pieces(tmp_path: Path) -> None:
    for content in (LINES, gzip.compress(LINES), b"One.\n\nTwo."):
        found = source(tmp_path, content)
        assert sum(piece.weight for piece in cut(found, 10)) == len(content)
    # Row groups of equal size, but for the last one with half the rows.
    table = pa.table({"text": [f"{n:>5000}" for n in range(35)]})
    stream = io.BytesIO()
    pq.write_table(table, stream, row_group_size=10, compression="none", use_dictionary=False)
    found = source(tmp_path, stream.getvalue())
    sizes = [piece.weight for piece in cut(found, 1)]
    assert sum(sizes) == found.size
    assert [size * 7 / found.size for size in sizes] == pytest.approx([2, 2, 2, 1], rel=0.05)
    assert [piece.weight for piece in cut(found, 1 << 30)] == [found.size]


# --- files that cannot be used


@pytest.mark.parametrize("compression", ["gz", "zst", "xz"])
def test_truncated_and_damaged(tmp_path: Path, compression: str) -> None:
    text = b"".join(b'{"text": "%d"}\n' % (n * 7919 % 10007) for n in range(200_000))
    content = COMPRESS[compression](text)
    path = tmp_path / "file"
    found = source(tmp_path, content)
    for size in (len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(DataError, match=f"{path} is truncated"):
            records(found)
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes(64) + content[middle + 64 :])
    with pytest.raises(DataError, match=f"{path} is damaged"):
        records(found)
    path.write_bytes(content + b"not the same kind")
    with pytest.raises(DataError, match=f"{path} is damaged"):
        records(found)
    path.write_bytes(content[:10])
    with pytest.raises(DataError, match=f"{path} is (truncated|empty)"):
        sniff(path, "corpus", "news")


def test_damaged_parquet(tmp_path: Path) -> None:
    content = parquet(pa.table({"text": [f"{n:>50}" for n in range(1000)]}), 1000)
    for damaged in (content[:-1], content[: len(content) // 2], b"PAR1"):
        with pytest.raises(DataError, match="file is truncated or damaged"):
            source(tmp_path, damaged)
    found = source(tmp_path, content)
    (tmp_path / "file").write_bytes(content[:4] + bytes(500) + content[504:])
    with pytest.raises(DataError, match="file is truncated or damaged"):
        records(found)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (bytes(range(256)), "is binary"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "is binary"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" * 9, "is binary"),
        ("One.".encode("utf-16"), "is UTF-16"),
        (b"BZh91AY&SY", "is truncated"),
        (b'[\n  {"text": "One."}\n]', "is one JSON array"),
    ],
)
def test_files_that_are_something_else(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"{tmp_path / 'file'} {message}"):
        source(tmp_path, content)


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.txt does not exist"):
        sniff(tmp_path / "nothing.txt", "corpus", "news")
    with pytest.raises(DataError, match="is a directory"):
        sniff(tmp_path, "corpus", "news")
    with pytest.raises(DataError, match=r"file/below does not exist"):
        source(tmp_path, LINES)
        sniff(tmp_path / "file" / "below", "corpus", "news")
    found = source(tmp_path, LINES)
    (tmp_path / "file").unlink()
    with pytest.raises(DataError, match="file cannot be read: No such file"):
        records(found)


def test_what_is_not_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/null", tmp_path / "pipe"):
        with pytest.raises(DataError, match=f"{path} is not a regular file; give files"):
            sniff(path, "corpus", "news")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(DataError, match="loop is a symbolic link that leads back to itself"):
        sniff(tmp_path / "loop", "corpus", "news")
    with pytest.raises(DataError, match="cannot be read: File name too long"):
        sniff(tmp_path / ("x" * 300), "corpus", "news")


def test_latin1_text_is_a_bad_record_not_a_bad_file(tmp_path: Path) -> None:
    text = "Déjà vu, naïve café, all in an old encoding.".encode("latin-1")
    assert records(source(tmp_path, text)) == [BadRecord("news:1", "invalid UTF-8")]


def test_a_document_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.data.documents.records.MAX_DOCUMENT_BYTES", 1 << 10)
    monkeypatch.setattr("pipeline.data.documents.byte_blocks.BLOCK_BYTES", 1 << 8)
    for plain_text in ("file", "blank_lines"):
        found = source(tmp_path, b"word " * 1000, plain_text=plain_text)
        with pytest.raises(DataError, match="blank lines between them"):
            records(found)


# --- the shipped sample


def test_sample_reads_without_a_bad_record() -> None:
    folder = SAMPLE_FILES
    counts = {}
    for corpus in ("articles", "books", "news", "stories", "web"):
        found = [
            record
            for path in sorted((folder / corpus).iterdir())
            for record in records(sniff(path, corpus, f"{corpus}/{path.name}"))
        ]
        assert all(isinstance(record, Record) for record in found)
        assert len({record.id for record in found if isinstance(record, Record)}) == len(found)
        counts[corpus] = len(found)
    assert counts == {"articles": 44, "books": 3, "news": 214, "stories": 50, "web": 33}


def test_credits_name_every_sample_file() -> None:
    folder = SAMPLE_FILES
    credits = (folder / "CREDITS.md").read_text()
    files = [path.relative_to(folder).as_posix() for path in folder.glob("*/*")]
    assert len(files) >= 5
    assert [name for name in files if f"`{name}`" not in credits] == []

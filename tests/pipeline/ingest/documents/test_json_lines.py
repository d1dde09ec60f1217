"""JSON lines to records: fields, bad lines, and what Python writes that is not JSON."""

import itertools
import json
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.ingest.documents import byte_blocks, json_lines, time_limit
from pipeline.ingest.documents.read import cut
from pipeline.ingest.documents.records import BadRecord, Dropped, Record, Source
from tests.pipeline.ingest.documents.raw_files import (
    COMPRESS,
    LINES,
    RECORDS,
    count_searched,
    in_blocks,
    records,
    source,
)
from tests.pipeline.ingest.documents.test_time_limit import compute
from tests.pipeline.ingest.files import bad_of, texts_of


@pytest.mark.parametrize("compression", COMPRESS)
def test_json_lines(tmp_path: Path, compression: str) -> None:
    content = COMPRESS[compression](LINES)
    found = source(tmp_path, content)
    assert found == Source(
        corpus="corpus", path=str(tmp_path / "file"), name="news", size=len(content),
        format="jsonl", compression=compression,  # type: ignore[arg-type]
        text_field="", plain_text="file", licence="",
    )  # fmt: skip
    assert records(found) == RECORDS


@pytest.mark.parametrize("block", [1, 1 << 16])
def test_lines_that_end_in_cr(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of old Macs; what ends only lines of text may be in a string."""
    in_blocks(monkeypatch, block)
    lines = ['{"text": "One."}', '{"text": "Two\u2028\x85."}', "{", '{"text": "Three."}']
    for end in ("\r", "\r\n", "\n"):
        found = source(tmp_path, end.join(lines).encode())
        for piece_bytes in (1, 7, 1000):
            its = records(found, piece_bytes)
            assert texts_of(its) == ["One.", "Two\u2028\x85.", "Three."], end
            assert bad_of(its) == [BadRecord("news:3", "invalid JSON")]


def test_a_damaged_first_line_is_a_bad_record(tmp_path: Path) -> None:
    for damaged in (
        b"# exported 2020", b"null", b'{"text": "cut o', b'{"text": "cut",', b'{"text":', b"\xc3!",
        b'["a", "b"]', b'"a"', b"{{x}}",
    ):  # fmt: skip
        for final in (b"\n", b""):
            content = damaged + b'\n{"text": "One."}\n{"text": "Two."}' + final
            bad, *good = records(source(tmp_path, content))
            assert isinstance(bad, BadRecord) and bad.where == "news:1", damaged
            assert texts_of(good) == ["One.", "Two."]


def test_byte_order_marks_and_json_that_python_cannot_parse(tmp_path: Path) -> None:
    bom = b"\xef\xbb\xbf"
    for before in (b"\n", b" \r\n\n", bom + b"\n"):
        content = before + bom + b'{"text": "One."}\n' + bom + b"\n" + bom + b'{"text": "Two."}'
        found = records(source(tmp_path, content))
        assert texts_of(found) == ["One.", "Two."] and len(found) == 2
    assert source(tmp_path, b"[" * 100_000).format == "text"
    assert source(tmp_path, b"[" + b"9" * 5000 + b"] bottles.").format == "text"
    nested = b'{"a": NaN, "b": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    found = records(source(tmp_path, LINES + nested))
    assert found == [*RECORDS, BadRecord("news:3", "invalid JSON")]


def test_fields(tmp_path: Path) -> None:
    """Also what Python writes and orjson rejects."""
    for line, text, origin in (
        ('{"body": "B", "content": "C"}', "B", "news"),
        ('{"text": "T", "path": "p", "id": "i"}', "T", "p"),
        ('{"text": "T", "id": 12}', "T", "12"),
        ('{"text": "T", "id": "i", "metadata": {"url": "m"}}', "T", "m"),
        ('{"text": "T", "url": "u", "metadata": {"url": "m"}}', "T", "u"),
        ('{"text": "caf\\u00e9 \\ud83d\\ude42 <mask>"}', "café 🙂 <mask>", "news"),
        ('{"text": "T", "score": NaN}', "T", "news"),
        ('{"text": "T", "score": [-Infinity, {"a": Infinity}]}', "T", "news"),
        ('{"text": "NaN \\ud83d\\ude42", "url": NaN, "id": 3}', "NaN 🙂", "3"),
        ('{"text": NaN, "content": "C"}', "C", "news"),
        ('{"text": "One \\ud800 two", "url": "a\\udc00"}', "One ? two", "a?"),
        ('{"text": "T \\uD83D\\uDE42 \\uDE42", "\\ud800": NaN}', "T 🙂 ?", "news"),
    ):
        assert records(source(tmp_path, line.encode())) == [Record("news@0", origin, text)], line
    # that does not excuse the rest
    for line, reason in (
        (b'{"text": "NaN}', "invalid JSON"), (b'{"text": "T", "score": NaN', "invalid JSON"),
        (b'{"text": "T", "score": nan}', "invalid JSON"),
        (b'{"text": "T", "score": -NaN}', "invalid JSON"),
        (b'{"text": "\\ud800, "score": NaN}', "invalid JSON"),
        (b'{"text": "T", "a\\udc0": NaN}', "invalid JSON"),
        (b'{"text": "caf\xe9", "score": NaN}', "invalid UTF-8"),
        (b'{"text": "T", "score": NaN, "n": ' + b"9" * 5000 + b"}", "invalid JSON"),
        (b'{"text": NaN}', "null text"), (b"NaN", "not a JSON object"),
    ):  # fmt: skip
        found = records(source(tmp_path, LINES + line))
        assert found == [*RECORDS, BadRecord("news:3", reason)], line


BAD_LINES = [
    (b'{"text": "One."}', None), (b'{"text": "One.', "invalid JSON"), (b"", None), (b"  \r", None),
    (b'{"title": "x"}', "no text field"), (b'{"text": null}', "null text"),
    (b'{"text": 5}', "text is not a string"), (b'["text"]', "not a JSON object"),
    (b'{"text": "caf\xe9"}', "invalid UTF-8"), (b'{"text": "\\ud800}', "invalid JSON"),
    (b'{"text": "Last."}', None),
]  # fmt: skip


@pytest.mark.parametrize("compression", ["", "gz"])
def test_bad_records_are_named_and_reading_continues(tmp_path: Path, compression: str) -> None:
    found = source(tmp_path, COMPRESS[compression](b"\n".join(line for line, _ in BAD_LINES)))
    for piece_bytes in (1, 7, 1000):
        got = records(found, piece_bytes)
        assert bad_of(got) == [
            BadRecord(f"news:{number}", reason)
            for number, (_, reason) in enumerate(BAD_LINES, 1) if reason
        ]  # fmt: skip
        assert texts_of(got) == ["One.", "Last."]


def test_text_in_a_named_field_and_in_a_field_of_a_field(tmp_path: Path) -> None:
    found = source(tmp_path, b'{"text": "T", "story": "S"}\n{"text": "T"}', text_field="story")
    assert records(found) == [Record("news@0", "news", "S"), BadRecord("news:2", "no text field")]
    lines = (
        b'{"a": {"b": "One."}, "id": 1}\n{"a.b": "Two.", "a": {"b": "no"}}\n'
        b'{"a": {"b": null}}\n{"a": {"b": [1]}}\n{"a": "x"}\n'
    )
    assert records(source(tmp_path, lines, text_field="a.b")) == [
        Record("news@0", "1", "One."), Record("news@30", "news", "Two."),
        BadRecord("news:3", "null text"), BadRecord("news:4", "text is not a string"),
        BadRecord("news:5", "no text field"),
    ]  # fmt: skip


# --- arrays

DOCUMENTS = [
    {"text": f'Brackets ]}}[{{ and "quotes" \\ \u00e9 {n}.', "id": n + 1, "n": [{}, [n]]}
    for n in range(4)
]
EXPECTED = [(str(one["id"]), one["text"]) for one in DOCUMENTS]


def array(folder: Path, content: bytes, **options: str) -> list[tuple[str, str]]:
    found = records(source(folder, content, **options))
    return [(r.origin, r.text) if isinstance(r, Record) else (r.where, r.reason) for r in found]


def test_every_object_of_an_array_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for indent, block in itertools.product((None, 0, 2), (1, 7, 1 << 22)):
        content = json.dumps(DOCUMENTS, indent=indent).encode()
        found = source(tmp_path, b"\xef\xbb\xbf" + content + b"\n" + content + b"\n")
        assert (found.format, len(cut(found, 1))) == ("json_array", 1)
        with monkeypatch.context() as small:
            in_blocks(small, block)
            both = [r for r in records(found) if isinstance(r, Record)]
        assert [(r.origin, r.text) for r in both] == EXPECTED * 2
        at = [int(r.id.rpartition("@")[2]) for r in both]
        whole = (tmp_path / "file").read_bytes()
        assert all(whole[place : place + 1] == b"{" for place in at) and len({*at}) == 8


def test_what_is_no_document_is_counted(tmp_path: Path) -> None:
    content = b'[{"text": "a"}, 1, "s,]\\"", [1, {}], null, {"x": 1}, {"a": {"b": "c"}}, {"text"}]'
    assert array(tmp_path, content, text_field="") == [
        ("news", "a"), *((f"news:{n}", "not a JSON object") for n in (2, 3, 4, 5)),
        ("news:6", "no text field"), ("news:7", "no text field"), ("news:8", "invalid JSON"),
    ]  # fmt: skip
    assert ("news", "c") in array(tmp_path, content, text_field="a.b")


def test_what_has_no_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = json.dumps(DOCUMENTS).encode()
    for content, problem in (
        (whole[:-1], "truncated"), (whole[:-9], "truncated"), (whole + b" more", "damaged"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=f"file is {problem}"):
            records(source(tmp_path, content))
    monkeypatch.setattr(json_lines, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(byte_blocks, "BLOCK_BYTES", 100)
    for content in (b'[{"text": "' + b"x" * 5000, b'[{"a": ' + b"[" * 5000, b"[{}," + b"1" * 5000):
        with pytest.raises(DataError, match="has an object of over"):
            records(source(tmp_path, content))
    assert BadRecord("news:1", "invalid JSON") in records(source(tmp_path, b'[{"a": [}]}]'))


def test_a_long_object_is_searched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched = count_searched(monkeypatch, json_lines, "_TOKEN")
    monkeypatch.setattr(byte_blocks, "BLOCK_BYTES", 1 << 10)
    content = json.dumps([{"text": "All.", "more": [[number, "]"] for number in range(5_000)]}])
    assert array(tmp_path, content.encode()) == [("news", "All.")]
    assert 0 < sum(searched) < 1.1 * len(content)


def joined(lines: list[dict[str, object]], is_array: bool) -> bytes:
    texts = [json.dumps(line) for line in lines]
    return (f"[{','.join(texts)}]" if is_array else "\n".join(texts)).encode()


@pytest.mark.parametrize("is_array", [False, True])
def test_slow_records_are_dropped_and_millions_of_values_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_array: bool
) -> None:
    def slow_text(fields: dict[str, str], names: tuple[str, ...]) -> str | None:
        compute(0.06 if fields["text"] == "slow" else 0)
        return fields["text"]

    with monkeypatch.context() as slow:
        slow.setattr(json_lines, "_text", slow_text)
        slow.setattr(time_limit, "SECONDS", 0.05)
        lines = [{"text": text} for text in ("One.", "slow", "Two.")]
        first, dropped, last = records(source(tmp_path, joined(lines, is_array)))
        assert isinstance(dropped, Dropped) and dropped.reason == "over 10 s of CPU"
        assert texts_of([first, last]) == ["One.", "Two."]
    monkeypatch.setattr(json_lines, "_LONG_BYTES", 100)
    monkeypatch.setattr(json_lines, "_MOST_VALUE_BYTES", 2_000)
    lines = [{"text": "One."}, {"text": "So, " * 24}, {"text": "x", "more": [{}] * 50}]
    *good, bad = records(source(tmp_path, joined(lines, is_array)))
    assert len(texts_of(good)) == 2
    assert bad == BadRecord("news:3", "millions of values in one object")

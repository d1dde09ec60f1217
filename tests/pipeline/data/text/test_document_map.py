"""A function of the user's: what it is given, what it may return, and what is wrong with it."""

import datetime
import decimal
import gzip
import io
import itertools
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from pipeline import inspect
from pipeline.base.errors import ConfigError, DataError
from pipeline.data.selection.filters import rewrite_texts
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import read_manifest
from pipeline.data.text.document_map import Document, apply_map, find_map
from pipeline.data.text.documents import DocumentCounts, read_batches
from pipeline.ingest.documents.read import cut, file_identity
from pipeline.ingest.documents.records import BadRecord, Dropped, Rewriting
from pipeline.ingest.documents.sniff import sniff
from tests.pages import read_pages
from tests.pipeline.ingest.documents.raw_files import arrow, parquet
from tests.pipeline.ingest.files import put
from tests.pipeline.preparing import Call, Prepare, write_jsonl

GIVEN = Document("Some text.", "a.jsonl@7", "news", "https://x.org/a")
HEAD = "from dataclasses import replace\nfrom pipeline.data.text.document_map import Drop\n"


def function(folder: Path, body: str) -> Rewriting:
    """The function `f` with this body, in a file."""
    path = folder / "tidy.py"
    path.write_text(f"{HEAD}def f(document):\n    {body}\n")
    return find_map(f"{path}:f")


def test_results(tmp_path: Path) -> None:
    for body, made in (
        ("return document", "Some text."),
        ("return replace(document, text=document.text.upper())", "SOME TEXT."),
        ("return document.id + document.corpus + document.origin", "a.jsonl@7newshttps://x.org/a"),
        ("return None", Dropped("a.jsonl@7", "map")),
        ("return Drop('too dull')", Dropped("a.jsonl@7", "map: too dull")),
        ("raise KeyError('x')",
         BadRecord("a.jsonl@7", "map raised KeyError", "KeyError: 'x' at tidy.py:4")),
        ("raise type('Mute', (Exception,), {'__str__': lambda self: self.text})",
         BadRecord("a.jsonl@7", "map raised Mute", "Mute at tidy.py:4")),
    ):  # fmt: skip
        assert apply_map(function(tmp_path, body), GIVEN) == made
    for body, says in (
        ("return 5", "returned int for a.jsonl@7"),
        ("return True", "returned bool"),
        ("return replace(document, text=None)", "returned Document"),
        ("return replace(document, id='b')", "another id, corpus, origin"),
        ("return Drop('')", r"returned Drop\(''\)"),
        ("return Drop('two\\nlines')", "returned Drop"),
        ("return Drop('x' * 101)", "at most 100 characters"),
        ("return Drop(None)", "returned Drop"),
        ("raise SystemExit(0)", "at a.jsonl@7 with SystemExit: 0 at tidy.py:4"),
        ("raise GeneratorExit", "at a.jsonl@7 with GeneratorExit"),
        ("raise type('Mute', (BaseException,), {'__str__': lambda _: exit(0)})", "with Mute at"),
    ):
        with pytest.raises(DataError, match=says):
            apply_map(function(tmp_path, body), GIVEN)


def test_functions_that_cannot_be_called(tmp_path: Path) -> None:
    for given, content, says in (
        ("tidy.py", "", "e.g. tidy.py:tidy"),
        ("tidy.txt:f", "", "name a file and a function"),
        ("tidy.py:", "", "name a file and a function"),
        ("tidy.py:f()", "", "name a file and a function"),
        ("nothing.py:f", "", "nothing.py: No such file"),
        ("tidy.py:g", "def f(document): pass", "g does not exist in .*tidy.py"),
        ("tidy.py:f", "f = 5", "f is not a function in .*tidy.py"),
        ("tidy.py:f", "def f(:", "SyntaxError: .* at tidy.py:1"),
        ("tidy.py:f", "import nowhere", "ModuleNotFoundError: .* at tidy.py:1"),
        ("tidy.py:f", "x = 1\nraise SystemError('no')", "SystemError: no at tidy.py:2"),
        ("tidy.py:f", "def f(d): pass\nimport sys; sys.exit()", "SystemExit: .* at tidy.py:2"),
    ):
        (tmp_path / "tidy.py").write_text(content)
        with pytest.raises(ConfigError, match=says):
            find_map(str(tmp_path / given))


def test_what_was_hashed_is_called(tmp_path: Path) -> None:
    """Also if the file changes within the second, with the same size; nothing is written by it. The
    file may define classes."""
    for letter in "abc":
        assert apply_map(function(tmp_path, f"return '{letter}'"), GIVEN) == letter
    assert [path.name for path in tmp_path.iterdir()] == ["tidy.py"]
    (tmp_path / "own.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass(slots=True)\nclass Own:\n    x: int = 3\n"
        "def f(document): return str(Own().x)\n"
    )
    assert apply_map(find_map(f"{tmp_path / 'own.py'}:f"), GIVEN) == "3"
    found = function(tmp_path, "return 'd'")
    function(tmp_path, "return 'e'")  # loads another one
    with pytest.raises(ConfigError, match="changed while the command ran"):
        apply_map(found, GIVEN)


def test_identity(tmp_path: Path) -> None:
    """The content and the name count, the place does not; without a map nothing is added."""
    path = write_jsonl(tmp_path / "in.jsonl", ["One.", "Two."])
    source = sniff(path, "news", path.name)
    plain = file_identity(source)
    assert rewrite_texts([source], "", []) == [source]
    identities = []
    for folder, content in (("a", "def f(d): 1"), ("b", "def f(d): 1"), ("c", "def f(d): 2")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.py").write_text(content + "\ng = f\n")
        for name in "fg":
            [mapped] = rewrite_texts([source], f"{tmp_path / folder / 'x.py'}:{name}", [])
            identities.append(file_identity(mapped))
    assert identities[:2] == identities[2:4]
    assert len({str(identity) for identity in [plain, *identities]}) == 5
    [lines] = rewrite_texts([source], "", ["c4"])
    assert file_identity(lines) not in [plain, *identities]


def test_documents_are_mapped_before_they_are_cleaned_and_hashed(tmp_path: Path) -> None:
    texts = ["One  text.", "Two.", "Three bad.", "Four drop.", "Five", "Six drop.", "One text."]
    path = write_jsonl(tmp_path / "in.jsonl", texts)
    sizes = [len(line) + 1 for line in path.read_text().splitlines()]
    ids = [f"in.jsonl@{at}" for at in itertools.accumulate([0, *sizes])]
    (tmp_path / "x.py").write_text(
        f"{HEAD}def f(document):\n"
        "    if 'bad' in document.text:\n        raise ValueError('bad text')\n"
        "    if 'Two' in document.text:\n        return None\n"
        "    if 'drop' in document.text:\n        return Drop('dull')\n"
        "    return document.text.replace('Five', '')\n"
    )
    [source] = rewrite_texts([sniff(path, "news", path.name)], f"{tmp_path / 'x.py'}:f", [])
    counts = DocumentCounts()
    [batch] = read_batches(tuple(cut(source, 1 << 20)), 0, counts)
    assert batch.ids == [ids[0], ids[6]] and batch.hashes[0] == batch.hashes[1]
    assert counts.dropped == {"map": 1, "map: dull": 2, "empty": 1}
    assert counts.bad == {"map raised ValueError": 1}
    what = "map raised ValueError (ValueError: bad text at x.py:5)"
    assert counts.bad_example == f"{ids[2]}: {what}"
    assert counts.examples == {"map": [ids[1]], "map: dull": [ids[3], ids[5]]}
    assert counts.left_out == len("Two.Four drop.Six drop.Five")


def test_too_many_reasons(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", [f"Text {n}." for n in range(5000)])
    (tmp_path / "x.py").write_text(f"{HEAD}def f(document): return Drop(document.id)\n")
    [source] = rewrite_texts([sniff(path, "news", path.name)], f"{tmp_path / 'x.py'}:f", [])
    with pytest.raises(DataError, match="over 4096 reasons"):
        [*read_batches(tuple(cut(source, 1 << 20)), 0, DocumentCounts())]


def test_the_example_of_the_docs(tmp_path: Path) -> None:
    example, *_ = read_pages()["pipeline/data/text/README.md"].blocks("py")
    (tmp_path / "tidy.py").write_text(example)
    tidy = find_map(f"{tmp_path / 'tidy.py'}:tidy")
    assert apply_map(tidy, replace(GIVEN, text="Read more: it.")) == " it."
    listed = replace(GIVEN, origin="https://x.org/tag/a")
    assert apply_map(tidy, listed) == Dropped(GIVEN.id, "map: list of articles")


PAPER = {
    "paper_id": "1",
    "pdf_parse": {
        "abstract": [{"text": "We ask."}],
        "body_text": [{"section": "1", "text": "We look."}, {"text": "We end."}],
    },
}
CHAT = {"id": 7, "messages": [{"role": "user", "content": "Hi."}, {"content": "Hello."}]}


def zipped(**members: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, member in members.items():
            archive.writestr(name.replace("_", "."), member)
    return content.getvalue()


def decoded(shards: Path, tokenizer: Path) -> str:
    """The text of all rows."""
    decode = Tokenizer.from_file(str(tokenizer / "tokenizer.json")).decode
    return "".join(
        decode(row["input_ids"])
        for shard in read_manifest(shards).shards
        for row in arrow_files.read_table(shards / shard.file).to_pylist()
    )


def put_parts(path: Path, content: bytes | list[bytes]) -> Path:
    """Write a file, or a folder of files."""
    if isinstance(content, bytes):
        return put(path, content)
    for number, part in enumerate(content):
        put(path / f"{number}.data", part)
    return path


def as_files(record: dict[str, object]) -> dict[str, bytes | list[bytes]]:
    """30 equal records as files of each shape that has their values; a list is a folder."""
    line, table = f"{json.dumps(record)}\n".encode(), pa.Table.from_pylist([record] * 30)
    return {
        "a.jsonl": line * 30,
        "a.json": json.dumps([record] * 30).encode(),
        "a.zip": zipped(in_jsonl=line * 30),
        "many": [line] * 30,
        "a.parquet": parquet(table),
        "a.arrow": arrow(table, "stream"),
        "a_tables.zip": zipped(in_parquet=parquet(table)),
        "tables": [parquet(table[:1])] * 15 + [arrow(table[:1], "file")] * 15,
    }


@pytest.mark.parametrize(
    ("name", "record", "text"),
    [("paper", PAPER, "We ask.\nWe look.\nWe end."), ("chat", CHAT, "Hi.\nHello.")],
)
def test_whole_records(
    name: str, record: dict[str, object], text: str, tmp_path: Path, make: Prepare, call: Call,
    tiny_tokenizer: Path,
) -> None:  # fmt: skip
    """The examples of the docs read papers and chats in JSON and tables of each shape, also where
    they are extracted first; a record of which the function makes nothing is as unusable as
    without it."""
    examples = "".join(read_pages()["pipeline/data/text/README.md"].blocks("py"))
    path = tmp_path / "read.py"
    path.write_text(f"{examples}\ndef tidy(document): return document.text.strip()\n")
    for file, content in as_files(record).items():
        given = put_parts(tmp_path / "given" / file, content)
        mapping = ("--map", f"{path}:{name}")
        said = call(inspect.main, given, *mapping)
        assert "30 kept, 100.0%" in said and text.split("\n")[0] in said
        options = ("--corpus", "own", "--input", given, "--dedup", "none", *mapping)
        assert "about 30 documents" in make(*options, "--dry-run")
        made = make(*options, output=file)
        assert "prepared 30 documents" in made
        assert decoded(tmp_path / file, tiny_tokenizer).count(text) == 30
        useless = ("--map", f"{path}:tidy")
        found = make("--corpus", "own", "--input", given, *useless, output="no", code=2)
        assert "pdf_parse" in found or "messages" in found
        assert "30 unusable" in call(inspect.main, given, *useless)
        # and without a function the same fields are named
        found = make("--corpus", "own", "--input", given, output="no", code=2)
        assert "--map" in found and ("pdf_parse" in found or "messages" in found)


VALUES = {
    "date": datetime.date(2020, 1, 2),
    "time": datetime.datetime(2020, 1, 2, 3, 4, 5),
    "price": decimal.Decimal("1.50"),
    "name": b"caf\xc3\xa9",
    "image": [{"bytes": b"\xff\xd8"}],
    "score": float("nan"),
    "tags": ["a", None],
}
SEEN = (
    '{"date": "2020-01-02", "time": "2020-01-02 03:04:05", "price": "1.50", "name": "café", '
    '"image": [{"bytes": null}], "score": null, "tags": ["a", null]}'
)
ROW = b'"A, b",We look.,caf\xc3\xa9\n'
HEADER = b"title,abstract,place\n"


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.parquet", parquet(pa.Table.from_pylist([VALUES] * 30)), SEEN),
        ("a.arrow", arrow(pa.Table.from_pylist([VALUES] * 30), "file"), SEEN),
        ("a", [parquet(pa.Table.from_pylist([VALUES]))] * 30, SEEN),
        (
            "a.csv",
            HEADER + ROW * 30,
            '{"title": "A, b", "abstract": "We look.", "place": "café"}',
        ),
        (
            "a.tsv.gz",
            gzip.compress(b"story\n" + b"One, two.\n" * 30, mtime=0),
            '{"story": "One, two."}',
        ),
    ],
)
def test_values_of_tables(
    name: str, content: bytes | list[bytes], text: str, tmp_path: Path, make: Prepare,
    tiny_tokenizer: Path,
) -> None:  # fmt: skip
    """Fields hold what JSON can, in each format the same, also where there is no text column."""
    path = tmp_path / "read.py"
    path.write_text(
        "import json\n\n\ndef f(document):\n"
        "    return json.dumps(document.fields, ensure_ascii=False)\n"
    )
    given = put_parts(tmp_path / "given" / name, content)
    make("--corpus", "own", "--input", given, "--dedup", "none", "--map", f"{path}:f")
    assert decoded(tmp_path / "out", tiny_tokenizer).count(text) == 30
    assert "--text-field" in make("--corpus", "own", "--input", given, output="no", code=2)


def test_damaged_rows_and_columns(tmp_path: Path, make: Prepare) -> None:
    path = tmp_path / "read.py"
    path.write_text("def f(document):\n    return str(document.fields)\n")
    mapping = ("--dedup", "none", "--map", f"{path}:f", "--max-bad-fraction", 0.5)
    # a list with a string that is not UTF-8
    notes = pa.ListArray.from_arrays(
        [0, 1, 2, 3], pa.array([b"a", b"\xff", b"c"]).view(pa.string())
    )
    table = pa.table({"id": [1, 2, 3], "notes": notes})
    put(tmp_path / "a.parquet", parquet(table))
    put(tmp_path / "a.csv", b"id,note\n1,a\n2,\xff\n3,c\n")
    for file in ("a.parquet", "a.csv"):
        said = make("--corpus", "own", "--input", tmp_path / file, *mapping, output=file[2:])
        assert "prepared 2 documents" in said and "1 invalid UTF-8" in said
    # without a function only the text column is read, here of a file whose others are damaged
    table = pa.table({"text": ["One."] * 30, "more": [f"{n} more" for n in range(30)]})
    stream = io.BytesIO()
    pq.write_table(table, stream, compression="none", use_dictionary=False)
    content = stream.getvalue()
    start, stop = content.index(b"0 more") - 20, content.index(b"29 more")
    given = put(tmp_path / "b.parquet", content[:start] + bytes(stop - start) + content[stop:])
    given = ("--corpus", "own", "--input", given)
    assert "prepared 30 documents" in make(*given, "--dedup", "none", output="text")
    assert "b.parquet is truncated or damaged" in make(*given, *mapping, output="all", code=2)
    # a name for two values
    put(tmp_path / "c.csv", b"id,note,note\n1,a,b\n")
    assert "'note'" in make("--corpus", "own", "--input", tmp_path / "c.csv", *mapping, code=2)

"""A small corpus of every format that `prepare` reads, and of every rule that drops documents.

The texts are stories of the sample; everything else is written here, so that a corpus is the same
on every machine. `formats.json` holds, by corpus: the documents, bytes and losses of the manifest,
rows by shard, the first and last document's id and origin, and a hash of all columns of rows, masks
and documents.parquet. A format may be read in another way only if these stay as they are.
"""

import csv
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from pipeline import prepare
from tests.benchmarks.file_system_calls import METADATA, FileSystemCalls
from tests.golden import recording
from tests.golden.compare import Case
from tests.launching import process
from tests.launching.process import ROOT
from tests.pipeline.ingest.compression.compressed_files import PACK
from tests.pipeline.ingest.documents import raw_files
from tests.pipeline.ingest.documents.raw_files import arrow
from tests.pipeline.ingest.dump import dump, small_dump
from tests.pipeline.ingest.dump import page as wiki_page
from tests.pipeline.ingest.files import put
from tests.pipeline.ingest.tars import tar
from tests.pipeline.ingest.web_archive import conversion, members, record, response
from tests.pipeline.ingest.web_archive import page as web_page

parquet = partial(raw_files.parquet, rows=7)
Files = dict[str, bytes]
"""By name below the corpus's folder."""

CORPUS = "mine"
SETTINGS = (
    f"data.vocab_size={recording.VOCAB_SIZE}", "data.duplicates=2", "data.validation_fraction=0.05",
)  # fmt: skip
ARGUMENTS: dict[str, tuple[object, ...]] = {
    "text_file": ("--plain-text", "file"),
    "text_book": ("--plain-text", "book"),
    "text_lines": ("--plain-text", "lines"),
    "names": ("--plain-text", "file"),
    "warc_english": ("--language", "en"),
    "losses": ("--max-bad-fraction", 0.2),
    "small_files": ("--max-bad-fraction", 0.05),
    "json_field": ("--text-field", "a.b"),
    "many_small_files": ("--plain-text", "file"),
    "dedup_exact": ("--dedup", "exact"),
    "dedup_near": ("--dedup", "near"),
    "decontaminate": ("--decontaminate", "WORK/evaluation.jsonl"),
    "map": ("--map", "WORK/tidy.py:tidy"),
    "most_words": ("--most-words", 2000),
    "c4_fineweb_near": ("--filter", "c4", "fineweb", "--dedup", "near"),
    "group_near": ("--dedup", "near", "--allow-short"),
    "by_folder": ("--by-folder",),
    **{
        f"filter_{rule}": ("--filter", rule)
        for rule in (
            "c4", "gopher-quality", "gopher-repetition", "fineweb", "min-words=100",
            "max-words=150", "min-letters=0.8", "max-repeated=0.3", "language=en",
        )
    },
}  # fmt: skip
"""Arguments beside the input, of corpora that need some; WORK: the folder that the input is in."""
GROUPS = {"group_near": "16gb"}
"""Corpora that are a group of named ones, with a folder for each."""
SLOW = ("many_small_files",)

COUNTS = ("documents", "bytes", "cut", "dropped", "bad", "noted", "plain_text")
"""Of a manifest's corpus, those that are recorded; the others follow from the rows."""

DOCUMENTS, CHARACTERS, LONG_PARAGRAPH = 32, 500, 1500


def stories() -> list[str]:
    """The first DOCUMENTS texts of about CHARACTERS, in whole paragraphs with wrapped lines."""
    [path] = (ROOT / "pipeline").rglob("sample/stories/stories.jsonl")
    found, taken = [], ""
    for line in path.read_text(encoding="utf-8").splitlines():
        for paragraph in json.loads(line)["body"].strip().split("\n\n"):
            if len(paragraph) < LONG_PARAGRAPH:
                taken += f"\n\n{paragraph.strip()}"
            if len(taken) >= CHARACTERS:
                found.append(taken.strip())
                taken = ""
            if len(found) == DOCUMENTS:
                return found
    raise AssertionError("the sample has fewer stories")


def all_corpora(texts: list[str] | None = None) -> dict[str, Files]:
    """Every corpus that is recorded, by name; texts: other ones than `stories`."""
    texts = texts or stories()
    lines = json_lines([{"text": text, "url": f"http://a.org/{n}"} for n, text in enumerate(texts)])
    blank = "\n\n\n".join(texts).encode()
    pages = {f"{n:02}.html": web_page(f"Tale {n}", paragraphs(text)).encode()
             for n, text in enumerate(texts)}  # fmt: skip
    separate = {f"{n:02}.txt": text.encode() for n, text in enumerate(texts)}
    crawl, table = crawled(texts), pa.table({"id": range(len(texts)), "body": texts})
    return {
        "jsonl": {"news.jsonl": lines},
        **{f"jsonl_{end}": {f"news.jsonl.{end}": pack(lines)} for end, pack in PACK.items()},
        "json_array": {"news.json": json.dumps([{"content": text} for text in texts]).encode()},
        "json_field": {"news.jsonl": json_lines([{"a": {"b": text}} for text in texts])},
        "wiki_jsonl": {"AA/wiki_00": wikiextractor_lines(texts)},
        "csv": {"news.csv": separated(texts, ",")},
        "tsv": {"news.tsv": separated(texts, "\t")},
        "parquet": {"news.parquet": parquet(table)},
        "arrow": {"file.arrow": arrow(table, "file", 7),
                  "stream.arrow": arrow(table.slice(5), "stream", 7)},
        "text_file": separate,
        "text_book": books(texts),
        "text_blank_lines": {"news.txt": blank},
        "text_lines": {"news.txt": b"".join(b" ".join(text.encode().split()) + b"\n"
                                            for text in texts)},
        **{f"text_{end}": {f"news.txt.{end}": pack(blank)} for end, pack in PACK.items()},
        "doc": {"AA/wiki_00": wikiextractor_markup(texts)},
        "mediawiki": {"dump.xml": dump(articles(texts))},
        "mediawiki_bz2": {"dump.xml.bz2": PACK["bz2"](dump(articles(texts))),
                          "small.xml.bz2": PACK["bz2"](small_dump())},
        "html": pages,
        "warc": {"crawl.warc": b"".join(crawl)},
        "warc_gz": {"crawl.warc.gz": members(crawl)},
        "warc_english": {"crawl.warc.gz": members(crawl)},
        "wet_gz": {"crawl.wet.gz": members(
            [record("warcinfo", b"a: b"), conversion(" \n"),
             *(conversion("\n".join(["Home", *paragraphs(text)]), f"https://www.p{n}.org/")
               for n, text in enumerate(texts))])},
        "tar_xz": {"openwebtext.tar.xz": PACK["xz"](tar(
            {f"a/{name}": text for name, text in separate.items()} | {"a/empty.txt": b""}))},
        "tar_of_tars": {"all.tar": tar({"texts.tar.xz": PACK["xz"](tar(separate)),
                                        "pages.tar": tar(pages)})},
        "zip": {"all.zip": zipped({"a/news.jsonl": lines, "README.md": b"About it.\n",
                                   "b/news.csv": separated(texts[:9], ",")} | pages)},
        "zip_of_texts": {"all.zip": zipped(separate)},
        "folder": mixed(texts, lines, pages),
        "losses": {"news.jsonl": with_losses(lines), "news.parquet": parquet(with_nulls(table))},
        "names": dict(zip(NAMES, separate.values())),
        "crlf_tables": {"news.jsonl": crlf(lines), "news.csv": crlf(separated(texts, ";"))},
        "crlf_text": {"news.txt": crlf(blank)},
        "small_files": small_files(texts),
    }  # fmt: skip


def other_corpora(texts: list[str] | None = None) -> dict[str, Files]:
    """More corpora, for what is done with documents of any format."""
    texts = texts or stories()
    whole = awkward(texts)
    lines = {"news.jsonl": json_lines([{"text": text} for text in whole])}
    pages = articles(texts)
    rules = [name for name in ARGUMENTS if name.startswith("filter_")]
    question = {"question": " ".join(texts[5].split()[10:40])}
    tidy = (
        "def tidy(document):\n"
        "    if document.id.endswith('0') or 'lorem' in document.text.lower():\n"
        "        return None\n"
        "    return document.text.replace(' the ', ' THE ')\n"
    )
    return {
        "csv_semicolons": {"news.csv": separated([f'"{text}"; so' for text in texts], ";")},
        "dump_in_parts": {
            f"dump-articles{n}.xml-p{n}.bz2": PACK["bz2"](dump(pages[n::3])) for n in range(3)
        },
        "many_small_files": {
            f"{n % 7}/{n:04}.txt": f"{texts[n % 32][n % 90 :][:200]}\n\nIt is {n}.\n".encode()
            for n in range(3000)
        },
        **dict.fromkeys(
            ("dedup_exact", "dedup_near", "most_words", "c4_fineweb_near", *rules), lines
        ),
        "decontaminate": lines | {"../evaluation.jsonl": json_lines([question])},
        "map": lines | {"../tidy.py": tidy.encode()},
        "group_near": {
            "wikipedia/AA/wiki_00": wikiextractor_lines(texts[:20]),
            "bookcorpus/book.jsonl": json_lines([{"text": text} for text in whole[10:]]),
        },
        "by_folder": {"de/news.jsonl": json_lines([{"text": text} for text in texts[:9]]),
                      "sw/a/b.txt": "\n\n\n".join(texts[9:20]).encode(),
                      "en.jsonl": lines["news.jsonl"]},
    }  # fmt: skip


def awkward(texts: list[str]) -> list[str]:
    """The texts, and one or two for each reason to drop a document."""
    sentences = re.split(r"(?<=[.!?]) ", " ".join(" ".join(texts[6:9]).split()))
    german = "Der Rat der Stadt hat am Dienstag beschlossen, die Brücke im Winter zu schließen. "
    return [
        *texts,
        texts[0],  # copies
        texts[1].upper(),
        texts[2].replace(" and ", " or ", 1) + " The end.",
        texts[3] + "\n\nLorem ipsum dolor sit amet, he said.",
        texts[4] + "\n\nfunction f() { return 1; }",
        texts[5] + "\n\nPlease enable javascript to read this page.\n\nTerms of use apply here.",
        "A very short text.",
        "\n\n".join(f"- {one}" for one in sentences),
        "\n\n".join(f"{one}..." for one in sentences),
        " # ".join(sentences[0].split() * 9),
        "\n\n".join(sentences[:2] * 12),
        "\n\n".join(one.rstrip(".!?") for one in sentences),
        " ".join(f"{number * 7919}" for number in range(120)),
        " ".join(one.replace(" ", "") for one in sentences),
        "the cat sat on the mat with a hat and " * 20,
        german * 9,
    ]


NAMES = (
    "Ä ö.txt", "日本語/ファイル.txt", "русский.txt", "with space.txt", "a#b?c%20.txt",
    "new\nline.txt", "joiner\u200d.txt", "no-ending", "x" * 240 + ".txt",
    "/".join(["deep"] * 40) + "/file.txt",
    "quote'\".txt", "e\u0301.txt", "at@12.txt",
)  # fmt: skip


def crlf(content: bytes) -> bytes:
    """As Windows writes it, with a byte order mark."""
    return b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n")


def paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in text.split("\n\n")]


def json_lines(rows: list[dict[str, Any]]) -> bytes:
    """Half with characters beyond ASCII as they are."""
    return b"".join(
        json.dumps(row, ensure_ascii=n % 2 == 0).encode() + b"\n" for n, row in enumerate(rows)
    )


def wikiextractor_lines(texts: list[str]) -> bytes:
    head = "https://en.wikipedia.org/wiki?curid="
    return json_lines([
        {"id": str(n), "revid": "1", "url": f"{head}{n}", "title": f"Tale {n}",
         "text": f"Tale {n}\n\n{text} ( ; born 1809) ends." if n % 5 else ""}
        for n, text in enumerate(texts)
    ])  # fmt: skip


def wikiextractor_markup(texts: list[str]) -> bytes:
    head = "https://en.wikipedia.org/wiki?curid="
    return "".join(
        f'<doc id="{n}" url="{head}{n}" title="Tale {n}">\nTale {n}\n\n'
        + (f"{text} A & B &lt; C ( ; born 1809).\n" if n % 5 else "")
        + "\n</doc>\n"
        for n, text in enumerate(texts)
    ).encode()


def separated(texts: list[str], separator: str) -> bytes:
    """With quotes and line breaks in values."""
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=separator, lineterminator="\n")
    writer.writerow(["id", "url", "text"])
    writer.writerows([n, f"http://a.org/{n}", text] for n, text in enumerate(texts))
    return stream.getvalue().encode()


def books(texts: list[str]) -> Files:
    """One with Project Gutenberg's header, one without, and two in a file."""

    def gutenberg(title: str, parts: list[str]) -> str:
        text = "\n\n".join(parts)
        return (
            f"The Project Gutenberg eBook of {title}\n\nProduced by A. Person\n\n"
            f"*** START OF THE PROJECT GUTENBERG EBOOK {title.upper()} ***\n\n{text}\n\n"
            "[Illustration: A bridge]\n\n"
            f"*** END OF THE PROJECT GUTENBERG EBOOK {title.upper()} ***\n\nLicence\n"
        )

    plain = "\n\n".join(texts[8:16]).replace(" himself", " him-\nself", 1)
    two = gutenberg("Third", texts[16:24]) + "\n\n" + gutenberg("Fourth", texts[24:])
    return {
        "first.txt": gutenberg("First", texts[:8]).encode(),
        "second.txt": f"SECOND\n\nI\n\n{plain}\n\n[Pg 12]\n\nTHE END\n".encode(),
        "two.txt": two.encode(),
    }


def articles(texts: list[str]) -> list[str]:
    """Every sixth page is a redirect."""
    return [
        wiki_page(n, f"Tale {n}", f"A '''tale''' of [[duck]]s.\n\n{text}\n\n== End ==\n* [[A]]")
        if n % 6
        else wiki_page(n, f"Tale {n}", "#REDIRECT [[A]]", more='\n    <redirect title="A" />')
        for n, text in enumerate(texts, 1)
    ]


def crawled(texts: list[str]) -> list[bytes]:
    """Pages of eight sites, and records that are dropped for every other reason."""
    pages = [
        response(web_page(f"Tale {n}", paragraphs(text)), f"https://www.p{n % 8}.org/{n}", number=n)
        for n, text in enumerate(texts)
    ]
    german = "Der Rat der Stadt hat am Dienstag beschlossen, die Brücke im Winter zu schließen."
    return [
        record("warcinfo", b"software: x\r\n"),
        *pages,
        response(web_page("Gone"), status=404),
        response("%PDF", content_type="application/pdf"),
        response("<nav><a href=x>World</a></nav>"),
        response(texts[0], content_type="text/plain; charset=utf-8"),
        response(web_page("Die Brücke", [german] * 4), "https://www.zeitung.de/1"),
        record("revisit", b"HTTP/1.1 304 Not Modified\r\n\r\n"),
    ]


def zipped(files: Files) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return stream.getvalue()


def small_files(texts: list[str]) -> Files:
    """A paragraph or two in each of many files of several formats, one of which is damaged."""
    found: Files = {}
    for number, text in enumerate(paragraphs("\n\n".join(texts))[:150]):
        name = f"{number % 4}/{number:03}"
        if number % 7 == 3:
            found[f"{name}.jsonl"] = json_lines([{"text": text, "url": f"http://a/{number}"}])
        elif number % 7 == 5:
            found[f"{name}.csv"] = f'id,text\n{number},"{text}"\n'.encode()
        elif number % 7 == 6:
            found[f"{name}.txt.gz"] = PACK["gz"](text.encode())
        else:
            found[f"{name}.txt"] = f"{text}\n\n{number} is the end.\n".encode()
    return found | {"2/bad.txt": b"It is \xff not UTF-8.\n\nBut this is.\n"}


def mixed(texts: list[str], lines: bytes, pages: Files) -> Files:
    """Small files of many formats in sub-folders, with some that are not read."""
    return {
        "README.md": b"What it is.\n",
        ".hidden.txt": b"Not read.\n",
        "empty.txt": b"",
        "a/news.jsonl": lines,
        "a/b/news.jsonl": lines[: lines.index(b"\n") + 1],
        "a/b/more.csv": separated(texts[:7], ","),
        "a/dump.xml.bz2": PACK["bz2"](dump(articles(texts[:8]))),
        "b/archive.tar.gz": PACK["gz"](tar({f"{n}.txt": t.encode() for n, t in enumerate(texts)})),
        "b/table.parquet": parquet(pa.table({"text": texts[:5]})),
        "c/crawl.warc.gz": members(crawled(texts[:8])),
        **{f"c/pages/{name}": page for name, page in list(pages.items())[:6]},
        **{f"d/{n}/text.txt": text.encode() for n, text in enumerate(texts[:6])},
    }


def with_losses(lines: bytes) -> bytes:
    """Bad records and empty ones between good ones."""
    wrong = [b'{"text": " "}', b'{"title": "x"}', b'{"text": "\xff"}', b'{"text": ', b"", b"[1]"]
    found = lines.splitlines()
    for n, line in enumerate(wrong):
        found.insert(n * 7 + 3, line)
    return b"\n".join(found)


def with_nulls(table: pa.Table) -> pa.Table:
    column = [None if n == 4 else " \n" if n == 9 else text
              for n, text in enumerate(table["body"].to_pylist())]  # fmt: skip
    return table.set_column(1, "body", pa.array(column))


# --- What is recorded of them


def write(files: Files, folder: Path) -> Path:
    for name, content in files.items():
        put(folder / name, content)
    return folder


def prepared(name: str, files: Files, work: Path) -> Path:
    """The shards of a corpus; work: a new folder for it, them and extracted files."""
    write(files, work / "input")
    with mock.patch.dict(os.environ, TENFOLD_ROOT=str(work)):
        recording.call(prepare.main, *arguments(name, work), "--workers", 1)
    return work / "shards"


def arguments(name: str, work: Path) -> list[object]:
    """Of pipeline.prepare, but for the number of workers."""
    changes = [word for text in SETTINGS for word in ("--set", text)]
    more = [str(word).replace("WORK", str(work)) for word in ARGUMENTS.get(name, ())]
    return [
        "--corpus", GROUPS.get(name, CORPUS), "--input", work / "input", "--recipe", "roberta_tiny",
        "--tokenizer", recording.TOKENIZERS / "byte-bpe", "--output", work / "shards",
        *changes, *more,
    ]  # fmt: skip


def described(shards: Path) -> dict[str, Any]:
    """What is recorded of a corpus."""
    manifest = json.loads((shards / "manifest.json").read_bytes())
    found = recording.described(shards)
    columns = found["columns"]
    counts = {
        corpus: {name: about[name] for name in COUNTS if about[name]}
        for corpus, about in manifest["corpora"].items()
    }
    documents = pq.read_table(shards / "documents.parquet", columns=["id", "origin"]).to_pylist()
    return {
        "counts": counts.get(CORPUS, counts),
        "rows": found["rows"],
        "ends": [f"{one['id']} {one['origin']}" for one in (documents[0], documents[-1])],
        "columns": _hash({name: columns[name] for name in columns if "documents" not in name}),
        "documents": _hash({name: columns[name] for name in columns if "documents" in name}),
    }


def _hash(values: dict[str, str]) -> str:
    return xxhash.xxh3_64_hexdigest(json.dumps(values, sort_keys=True).encode())


def measure(name: str, work: Path) -> dict[str, Any]:
    corpora = other_corpora() if name in OTHERS else all_corpora()
    return described(prepared(name, corpora[name], work))


def processes(work: Path) -> dict[str, Any]:
    """Files of shards that differ from those of one worker, by ways to prepare them."""
    sample = (
        "--corpus", "sample", "--recipe", "bert_tiny", "--set", "data.vocab_size=512",
        "--tokenizer", recording.TOKENIZERS / "wordpiece-uncased", "--dedup", "near", "--output",
    )  # fmt: skip
    stand_in = [sys.executable, "-S", "-E", ROOT / "tests/launching/stand_in.py"]
    mpi = [Path(sys.executable).with_name("mpiexec"), "-n", 4, *stand_in]
    ways: dict[str, list[list[object]]] = {
        "one worker": [[sys.executable, "WORDS", "--workers", 1]],
        "two workers": [[sys.executable, "WORDS", "--workers", 2]],
        "two parts": [
            [sys.executable, "WORDS", "--part", f"{n}/2", "--workers", 1] for n in (2, 1)
        ],
        "four MPI ranks": [[*mpi, "WORDS"]],
    }
    contents, found = {}, {}
    for way, commands in ways.items():
        output = work / way
        for words in commands:
            place = words.index("WORDS")
            words[place : place + 1] = ["-m", "pipeline.prepare", *sample, output]
            done = process.run(words, env=os.environ | {"TENFOLD_ROOT": f"{output} root"})
            assert done.returncode == 0, done.stderr
        contents[way] = {
            str(path.relative_to(output)): path.read_bytes()
            for path in output.rglob("*") if path.is_file() and not path.name.startswith(".")
        }  # fmt: skip
        one = contents["one worker"]
        names = one.keys() | contents[way].keys()
        different = [name for name in sorted(names) if one.get(name) != contents[way].get(name)]
        found[way] = {"files": len(contents[way]), "different": " ".join(different)}
    return found


def cost(work: Path) -> dict[str, float]:
    """Calls of the file system per file, and peak memory, of one worker that reads small files."""
    name = "many_small_files"
    files = other_corpora()[name]
    write(files, work / "input")
    calls = FileSystemCalls.below(work, work.with_name(f"{work.name}-counter"))
    counted = calls.environment() | {"TENFOLD_ROOT": str(work / "root")}
    words = ["-m", "pipeline.prepare", *arguments(name, work), "--workers", 1]
    started = process.start(
        [sys.executable, *words], cold=True, env=counted, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(started.pid, 0)
    assert status == 0
    found = calls.read()
    per_file = {kind: found[kind] / len(files) for kind in (*METADATA, "read")}
    return per_file | {"peak memory in MB": used.ru_maxrss / 1e3}


OTHERS = tuple(other_corpora(["A text. " * 20] * 32))
CASES = [
    *(Case(f"formats/{name}", partial(measure, name), slow=name in SLOW)
      for name in (*all_corpora(["A text. " * 20] * 32), *OTHERS)),
    Case("processes", processes, slow=True),
    Case("cost/many_small_files", cost, slow=True, tolerance=0.2),
]  # fmt: skip

"""Small inputs of the tables of commands, by the name under which a command line names them."""

import bz2
import functools
import gzip
import io
import itertools
import json
import lzma
import random
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

NOUNS = (
    "house",
    "river",
    "bridge",
    "garden",
    "market",
    "letter",
    "window",
    "winter",
    "council",
    "engineer",
    "ferry",
    "teacher",
)
VERBS = ("opens", "closes", "watches", "follows", "carries", "repairs", "remembers", "leaves")
ADJECTIVES = ("old", "small", "quiet", "bright", "famous", "narrow", "empty", "late")


@functools.cache
def stories(count: int, seed: int = 0) -> list[str]:
    """Documents of six sentences, all different."""
    rng = random.Random(seed)

    def sentence() -> str:
        one, two = rng.sample(NOUNS, 2)
        first, second = rng.sample(ADJECTIVES, 2)
        verb, year = rng.choice(VERBS), rng.randint(1500, 2000)
        return f"The {first} {one} of the town {verb} the {second} {two}, and that was in {year}."

    return [f"Story {n}. " + " ".join(sentence() for _ in range(6)) for n in range(count)]


def lines(values: Iterable[object]) -> bytes:
    """JSON lines."""
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values).encode()


def news(count: int = 300, seed: int = 0) -> bytes:
    """JSON lines of stories."""
    pages = enumerate(stories(count, seed))
    return lines({"text": text, "url": f"https://paper.org/{n}"} for n, text in pages)


def parquet(texts: Iterable[str]) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table({"text": list(texts)}), stream)
    return stream.getvalue()


def arrow(texts: Iterable[str]) -> bytes:
    table, stream = pa.table({"text": list(texts)}), io.BytesIO()
    with pa.ipc.new_file(stream, table.schema) as writer:
        writer.write_table(table)
    return stream.getvalue()


def csv(separator: str, texts: Iterable[str]) -> bytes:
    rows = [f'{n}{separator}"{text}{separator} he said ""so""."\n' for n, text in enumerate(texts)]
    return "".join([f"id{separator}text\n", *rows]).encode()


def tar(content: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, text in content.items():
            header = tarfile.TarInfo(name)
            header.size = len(text)
            archive.addfile(header, io.BytesIO(text))
    return stream.getvalue()


def archive(content: Mapping[str, bytes]) -> bytes:
    """A zip file."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, text in content.items():
            file.writestr(name, text)
    return stream.getvalue()


def dump(texts: Iterable[str]) -> bytes:
    """A MediaWiki dump: an article for each text, then a redirect and a talk page."""
    pages = [
        (f"Place {n}", 0, f"'''Place {n}''' is [[a place|here]].<ref>A source.</ref> {text}")
        for n, text in enumerate(texts)
    ]
    pages += [("Other", 0, "#REDIRECT [[Place 0]]"), ("Talk:Place 0", 1, "Is it?")]
    body = "".join(
        f"<page><title>{title}</title><ns>{space}</ns><id>{n}</id><revision><id>{n}</id>"
        f"<model>wikitext</model><text>{escape(text)}</text></revision></page>\n"
        for n, (title, space, text) in enumerate(pages, 1)
    )
    return f'<mediawiki xml:lang="en"><siteinfo></siteinfo>\n{body}</mediawiki>\n'.encode()


def page(number: int, text: str) -> str:
    """A web page: an article between menus."""
    menu = "".join(f'<li><a href="/{word}">{word.title()}</a></li>' for word in NOUNS[:6])
    paragraphs = "".join(f"<p>{part}.</p>" for part in text.split(". "))
    return (
        f'<!DOCTYPE html><html lang="en"><head><title>Page {number}</title></head><body>'
        f"<nav><ul>{menu}</ul></nav><div><h1>Page {number}</h1>{paragraphs}</div>"
        "<footer>All rights reserved.</footer></body></html>"
    )


def warc(kind: str, texts: Iterable[str]) -> bytes:
    """A WARC or WET file, a gzip member for each record."""
    members = []
    for n, text in enumerate(texts):
        body = text.encode()
        if kind == "response":
            body = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + page(n, text).encode()
        head = (
            f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:{n}>\r\n"
            f"WARC-Target-URI: https://www.paper.org/{n}\r\nWARC-Date: 2021-05-01T10:00:00Z\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        members.append(gzip.compress(head.encode() + body + b"\r\n\r\n", mtime=0))
    return b"".join(members)


def book(number: int) -> bytes:
    """A book with Project Gutenberg's header and footer."""
    text = "\n\n".join(stories(20, seed=100 + number))
    return (
        f"The Project Gutenberg eBook of Book {number}\n\nTitle: Book {number}\n\n"
        f"*** START OF THE PROJECT GUTENBERG EBOOK BOOK {number} ***\n\n{text}\n\n"
        f"*** END OF THE PROJECT GUTENBERG EBOOK BOOK {number} ***\n\nThe licence.\n"
    ).encode()


def copies() -> list[str]:
    """100 documents, 20 exact copies in other case, and 20 near-copies."""
    own = stories(100, seed=1)
    return [*own, *(text.upper() for text in own[:20]), *(f"{text} More." for text in own[20:40])]


def mixed() -> list[str]:
    """90 stories, and ten documents each that are short, numbers, one line repeated, German."""
    german = "Das alte Haus der Stadt steht am Fluss, und der Lehrer sieht den Garten von Nummer"
    return [
        *stories(90),
        *(f"Too short {n}." for n in range(10)),
        *(" ".join(str(n * k) for k in range(1000, 1060)) for n in range(10)),
        *("\n".join([f"It is line {n} of all."] * 12) for n in range(10)),
        *(" ".join(f"{german} {n + k}." for k in range(4)) for n in range(10)),
    ]


def labelled(*columns: str) -> Iterable[dict[str, object]]:
    """48 rows whose label the word good or bad tells."""
    for n in range(48):
        word = ("bad", "good")[n % 2]
        row = {
            "text": f"The film is {word}, said {NOUNS[n % 12]}.",
            "stars": 1 + n % 2,
            "score": 1.5 + n % 2 + n % 12 / 100,
            "first": "It is a good film.",
            "second": "It is a bad film.",
            "right": 1 - n % 2,
            "author": NOUNS[n % 12],
            "question": "How is the film?",
            "answer": word,
        }
        yield {name: row[name] for name in columns}


def table(*columns: str) -> bytes:
    """Labelled rows as CSV."""
    rows = [",".join(f'"{value}"' for value in row.values()) for row in labelled(*columns)]
    return "\n".join([",".join(columns), *rows, ""]).encode()


def words_and_tags() -> bytes:
    pairs = itertools.product(("Anna", "Bo", "Carl", "Dora"), ("Paris", "Rome", "Oslo", "Lima"))
    return lines(
        {"words": f"{name} met the mayor of {town} .", "tags": "B-PER O O O O B-LOC O"}
        for name, town in pairs
    )


def squad() -> bytes:
    """A question for each of 24 paragraphs, in SQuAD's form."""
    paragraphs = []
    for noun, word in itertools.product(NOUNS, ("old", "new")):
        answer = {"text": word, "answer_start": 8 + len(noun)}
        question = {"id": f"{noun}-{word}", "question": f"How is the {noun}?", "answers": [answer]}
        paragraphs.append({"context": f"The {noun} is {word}.", "qas": [question]})
    content = {"version": "1.1", "data": [{"title": "A", "paragraphs": paragraphs}]}
    return json.dumps(content).encode()


MAP = b"""
def tidy(document):
    if "Story 7" in document.text:
        return None
    return document.text.replace("house", "castle")
"""
ARMS = b"""
from pipeline.experiments.arms import Arm

ARMS = [Arm("usual", "roberta_tiny", ()), Arm("four-heads", "roberta_tiny", ("encoder.heads=4",))]
"""
SOURCES = ("bnc_spoken", "childes", "gutenberg", "open_subtitles", "simple_wiki", "switchboard")
"""Files of a BabyLM corpus, `train_10M/bnc_spoken.train` and so on."""


def utterances(seed: int) -> bytes:
    """A file of a BabyLM corpus: a sentence per line, a blank line between documents."""
    documents = [text.replace(". ", ".\n") for text in stories(30, seed)]
    return "\n\n".join([*documents, ""]).encode()


CONTENT = Callable[[], bytes]
LEASE = {
    "token": "t", "host": "node9", "place": "another machine", "process": 9, "process_started": "1",
    "slurm_job": "7", "slurm_restart_count": 0,
}  # fmt: skip
"""Of a run that a job on another machine holds."""
TEXTS: dict[str, CONTENT | dict[str, CONTENT]] = {
    "news.jsonl": news,
    "more.jsonl": lambda: news(100, seed=2),
    "news.jsonl.gz": lambda: gzip.compress(news(), mtime=0),
    "news.jsonl.zst": lambda: zstandard.compress(news()),
    "news.jsonl.xz": lambda: lzma.compress(news()),
    "news.jsonl.bz2": lambda: bz2.compress(news()),
    "array.json": lambda: json.dumps([{"text": text} for text in stories(40)]).encode(),
    "nested.jsonl": lambda: lines({"a": {"b": text}} for text in stories(40)),
    "chats.jsonl": lambda: lines({"messages": [{"content": text}]} for text in stories(40)),
    "news.parquet": lambda: parquet(stories(40)),
    "news.arrow": lambda: arrow(stories(40)),
    "news.csv": lambda: csv(",", stories(40)),
    "semicolons.csv": lambda: csv(";", stories(40)),
    "news.tsv": lambda: csv("\t", stories(40)),
    "stories.txt": lambda: "\n".join(stories(40)).encode(),
    "blank.txt": lambda: "\n\n".join(stories(40)).encode(),
    "latin.txt": lambda: "\n".join([*stories(2), "caf\xe9", *stories(2)]).encode("latin-1"),
    "lease.json": lambda: json.dumps(LEASE).encode(),
    "books": {f"{n}.txt": functools.partial(book, n) for n in range(12)},
    "files": {
        f"{n:03}.txt": functools.partial(str.encode, text) for n, text in enumerate(stories(100))
    },
    "files.tar": lambda: tar({f"{n}.txt": text.encode() for n, text in enumerate(stories(40))}),
    "tars.tar.xz": lambda: lzma.compress(
        tar(
            {
                "a.tar": tar({"1.txt": stories(2)[0].encode()}),
                "b.tar": tar({"2.txt": stories(2)[1].encode()}),
            }
        )
    ),
    "files.zip": lambda: archive({f"{n}.txt": text.encode() for n, text in enumerate(stories(40))}),
    "dump.xml": lambda: dump(stories(40)),
    "dump.xml.bz2": lambda: bz2.compress(dump(stories(40))),
    "wiki_00": lambda: lines(
        {"id": f"{n}", "title": f"T{n}", "text": text, "url": ""}
        for n, text in enumerate(stories(40))
    ),
    "crawl.warc.gz": lambda: warc("response", stories(40)),
    "crawl.wet.gz": lambda: warc("conversion", stories(40)),
    "site": {
        f"{n}.html": lambda n=n, text=text: page(n, text).encode()
        for n, text in enumerate(stories(40))
    },
    "languages": {
        "en-web/1.jsonl": lambda: news(60, seed=3),
        "de-web/1.jsonl": lambda: news(30, seed=4),
    },
    "copies.jsonl": lambda: lines({"text": text} for text in copies()),
    "ids.txt": lambda: b"news.jsonl@0\r\n\nhttps://paper.org/7\r\n",
    "quiz": {"dev.json": lambda: json.dumps({"data": [{"context": stories(300)[5]}]}).encode()},
    "mixed.jsonl": lambda: lines({"text": text} for text in mixed()),
    "bad.jsonl": lambda: news(97) + b'{"text": 3}\n{broken\n\n',
    "chinese.jsonl": lambda: lines(
        {"text": "他在一八五〇年出生在小城市。" * n} for n in range(5, 40)
    ),
    "tidy.py": lambda: MAP,
    "arms.py": lambda: ARMS,
    "reviews.csv": lambda: table("text", "stars"),
    "numbers.csv": lambda: table("text", "score"),
    "choices.csv": lambda: table("text", "first", "second", "right"),
    "answers.csv": lambda: table("question", "text", "answer", "author"),
    "entities.jsonl": words_and_tags,
    "squad": {"train-v1.1.json": squad, "dev-v1.1.json": squad},
    "pairs": {"agreement.txt": lambda: b"look at this things .\nlook at this thing .\n" * 2},
    "train_10M": {
        f"{name}.train": functools.partial(utterances, n) for n, name in enumerate(SOURCES)
    },
    "babylm": {
        "blimp_filtered/agreement.jsonl": lambda: (
            b'{"sentence_good": "look at these .", "sentence_bad": "look at this these ."}\n'
        )
    },
    "sentences.txt": lambda: b"The old house opens the window.\nThe river is long.\n",
    "cloze.txt": lambda: b"The old [MASK] opens the window.\n",
    "latin.jsonl": lambda: '{"text": "The “café” – ça va?"}\n'.encode("cp1252") * 9,
    "empty.jsonl": lambda: b"",
    "cut.jsonl.gz": lambda: gzip.compress(news())[:-99],
    "notes.pdf": lambda: b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<<>>\nendobj\n" * 9,
    "ds.json": lambda: b'{"zero_optimization": {"stage": 2, "overlap_comm": true}}',
    "bad-ds.json": lambda: b'{"train_batch_size": 3, "zero_optimization": {"stage": 1}}',
}
"""Content by name; of folders, by the file's name in it."""


def write(folder: Path) -> None:
    """Write all texts into a folder."""
    for name, content in TEXTS.items():
        within = content if isinstance(content, dict) else {"": content}
        for file, make in within.items():
            path = folder / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(make())

"""Text arrives as it was written: by every reader the same, and in the shards' ids in full."""

import functools
import html
import random
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from pipeline.data.selection.sample import SplitShare
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import read_manifest
from pipeline.data.text.cleaning import clean
from pipeline.data.text.documents import DocumentCounts
from pipeline.data.text.text_tasks import cut_tasks
from pipeline.data.tokenizers.folders import save_vocabulary
from pipeline.data.tokenizers.trainers import train_vocabulary
from pipeline.execution.workers import local_executor
from pipeline.ingest.documents.sniff import sniff
from pipeline.ingest.extraction.extract import extract
from tests.golden.formats import json_lines, parquet, separated
from tests.pipeline.ingest.dump import dump, page
from tests.pipeline.ingest.files import put
from tests.pipeline.ingest.web_archive import page as web_page
from tests.pipeline.ingest.web_archive import response
from tests.pipeline.preparing import Prepare, tiny, write_jsonl

PROSE = {
    "fr": [
        "« Où allez-vous ? » demanda-t-elle ; il ne répondit pas : la pluie tombait trop fort !",
        "Le prix était de 12\u202f500 francs\u00a0: « C’est trop\u00a0! » dit le marchand ; "
        "pourquoi donc ? Personne, ce soir-là, ne voulut l’expliquer (ni lui, ni sa femme).",
    ],
    "de": [
        "„Wohin gehst du?“, fragte sie; er aber schwieg: Der Regen fiel zu stark auf die Straße.",
        "Im Jahr 1850 kostete das Haus 12.500 Taler – viel Geld für einen Müller, z. B. den "
        "alten Krüger, der (wie man sagte) nie mehr als ein Pferd besaß.",
    ],
    "ru": [
        "«Куда вы идёте?» — спросила она; он не ответил: дождь шёл слишком сильно, и было темно.",
        "В 1850 году дом стоил 12 500 рублей — большие деньги для мельника, который (как "
        "говорили) никогда не имел больше одной лошади.",
    ],
    "zh": [
        "“你要到哪里去？”她问道；他没有回答：雨下得太大了，街上已经看不见一个人。",
        "一八五〇年，这所房子值一万二千五百元，对于一个磨坊主来说是一大笔钱（据说他从来没有超过一匹马）。",
    ],
    "th": [
        "เธอถามว่าจะไปที่ไหน แต่เขาไม่ได้ตอบ เพราะฝนตกหนักมากจนมองไม่เห็นถนนหน้าบ้านเลยในคืนนั้น",
        "ในปี พ.ศ. ๒๓๙๓ บ้านหลังนี้มีราคา ๑๒,๕๐๐ บาท ซึ่งเป็นเงินจำนวนมากสำหรับเจ้าของโรงสี "
        "(คนเล่ากันว่าเขามีม้าเพียงตัวเดียว)",
    ],
    "ar": [
        "«إلى أين تذهب؟» سألته؛ لكنه لم يجب: كان المطر يهطل بغزارة، ولم يبق أحد في الشارع الطويل.",
        "في عام ١٨٥٠ كان ثمن البيت ١٢٬٥٠٠ قرش، وهو مبلغ كبير على طحان (كما قيل) لم يملك قط أكثر "
        "من حصان واحد في حياته كلها.",
    ],
    "code": [
        "An empty list is written [] in Python and () is an empty tuple; the call f() has none.",
        "In C, for (;;) { if (a[i] < b && !(x ; y)) return; } never ends : it is a loop ... :)",
    ],
}


@functools.cache
def documents() -> dict[str, str]:
    """PROSE, and paragraphs of words of one random script each, from all planes of Unicode."""
    letters = [
        chr(code)
        for code in range(0xA1, 0x30000)
        if unicodedata.category(chr(code)) in ("Ll", "Lo", "Lm", "Nd", "Mn", "Mc", "So")
        and unicodedata.is_normalized("NFKC", chr(code))
    ]

    def word(rng: random.Random) -> str:
        start = rng.randrange(len(letters) - 40)
        return "x" + "".join(rng.choices(letters[start : start + 40], k=rng.randint(2, 9)))

    def sentence(rng: random.Random) -> str:
        words = ("".join(word(rng) for _ in range(rng.randint(1, 3))) for _ in range(14))
        return " ".join(words) + "."

    found = {f"random {seed}": random.Random(seed) for seed in range(4)}
    more = {name: [sentence(rng) for _ in range(6)] for name, rng in found.items()}
    return {name: "\n\n".join(parts) for name, parts in (PROSE | more).items()}


def wikiextractor_text(texts: list[str]) -> bytes:
    return "".join(
        f'<doc id="{number}" url="https://fr.wikipedia.org/wiki?curid={number}" title="T">\n'
        f"{text}\n\n</doc>\n"
        for number, text in enumerate(texts)
    ).encode()


def dump_content(texts: list[str]) -> bytes:
    """Text is shielded from wikitext where it has its characters, as editors do."""

    def shielded(paragraph: str) -> str:
        marked = any(mark in paragraph for mark in ("[", "{", "<", "''"))
        return f"<nowiki>{escape(paragraph)}</nowiki>" if marked else paragraph

    return dump([
        page(number, f"Page {number}", "\n\n".join(map(shielded, text.split("\n\n"))))
        for number, text in enumerate(texts, 1)
    ])  # fmt: skip


def warc_content(texts: list[str]) -> bytes:
    pages = (web_page("", map(html.escape, text.split("\n\n"))) for text in texts)
    return b"".join(
        response(page, f"https://www.p{n}.org/", number=n) for n, page in enumerate(pages)
    )


WIKIPEDIA = {"id": "1", "revid": "1", "url": "https://fr.wikipedia.org/wiki?curid=1", "title": "T"}
MANY: dict[str, Callable[[list[str]], bytes]] = {
    "text.jsonl": lambda texts: json_lines([{"text": text} for text in texts]),
    "text.parquet": lambda texts: parquet(pa.table({"text": texts})),
    "text.csv": lambda texts: separated(texts, ","),
    "wiki_00": wikiextractor_text,
    "wiki_00.json": lambda texts: json_lines([WIKIPEDIA | {"text": text} for text in texts]),
    "dump.xml": dump_content,
    "pages.warc": warc_content,
}
"""Content of files of many documents, by a name of their format."""
SINGLE = {
    "plain.txt": "{}\n",
    "book.txt": (
        "The Project Gutenberg eBook of A Book\n\n"
        "*** START OF THE PROJECT GUTENBERG EBOOK A BOOK ***\n\n"
        "{}\n\n*** END OF THE PROJECT GUTENBERG EBOOK A BOOK ***\n\nLicence\n"
    ),
}
"""Files of one document."""


def read_back(path: Path, folder: Path) -> list[str]:
    """The cleaned documents of a file, in order."""
    source = sniff(path, "mine", path.name)
    if source.format == "text":
        source = replace(source, plain_text="file")
    sources = extract([source], folder / "documents", local_executor(1))
    counts = DocumentCounts()
    texts = [
        text for task in cut_tasks(sources) for text in SplitShare(task, 1 << 40).texts(counts)
    ]
    assert not counts.bad and not counts.dropped, (counts.bad_example, counts.dropped)
    return texts


@pytest.mark.parametrize("name", [*MANY, *SINGLE])
def test_every_reader_gives_the_same_text(name: str, tmp_path: Path) -> None:
    path, texts = tmp_path / name, [*documents().values()]
    if name in MANY:
        found = read_back(put(path, MANY[name](texts)), tmp_path)
    else:
        files = (SINGLE[name].format(text) for text in texts)
        found = [text for file in files for text in read_back(put(path, file), tmp_path)]
    if name == "dump.xml":  # an article begins with its title
        found = [text.partition("\n")[2] for text in found]
    expected = clean(texts).texts()
    for document, one, other in zip(documents(), found, expected, strict=True):
        assert one == other, document


@pytest.mark.parametrize("kind", ["byte-bpe", "wordpiece", "unigram"])
def test_decoded_ids_of_a_shard_are_the_cleaned_text(
    kind: str, run: Prepare, tmp_path: Path
) -> None:
    """The vocabularies know all characters here."""
    texts = [documents()[name] for name in PROSE]
    recipe = {"byte-bpe": "roberta_tiny", "wordpiece": "spanbert_tiny", "unigram": "albert_tiny"}
    vocabulary = train_vocabulary(kind, lambda: iter(texts * 2), 1200, lower_case=False)
    save_vocabulary(vocabulary, tmp_path / "tokenizer", 32)
    path, out = write_jsonl(tmp_path / "text.jsonl", texts), tmp_path / "out"
    settings = (
        f"data.vocab_size={vocabulary.size}", "data.lower_case=false", "data.format=doc_sentences",
        "data.segments.label=none", "objective.kind=mlm", "data.masking=token",
    )  # fmt: skip
    chosen = [word for setting in settings for word in ("--set", setting)]
    given = ("--corpus", "mine", "--input", path, "--recipe", recipe[kind], *chosen)
    run(*given, *tiny(tmp_path / "tokenizer", out)[2:])
    tokenizer = Tokenizer.from_str(vocabulary.tokenizer_json)
    rows = {
        row["sequence"]: np.array(row["input_ids"])
        for shard in read_manifest(out).shards
        for row in arrow_files.read_table(out / shard.file).to_pylist()
    }
    found = []
    for document in pq.read_table(out / "documents.parquet").to_pylist():
        own = range(document["first_sequence"], document["last_sequence"] + 1)
        ids = np.concatenate([rows[sequence] for sequence in own])
        found.append(tokenizer.decode(ids[~vocabulary.special[ids]].tolist()))
    expected = clean(texts).texts()
    if kind != "byte-bpe":  # normalized, and white space is not in their ids
        normalize = tokenizer.normalizer.normalize_str
        expected = ["".join(normalize(text).split()) for text in expected]
        found = ["".join(text.split()) for text in found]
    assert sorted(found) == sorted(expected)

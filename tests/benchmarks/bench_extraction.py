"""Wikitext to prose: speed per core, holes, token F1; against mwparserfromhell's `strip_code`.

    python -m tests.benchmarks.bench_extraction DUMP.xml.bz2 [--labels LABELS]

CPU seconds of one thread, alternating, medians. The user provides the dump: none comes with the
code.

LABELS (wiki_labels.json) names ten pages of the English Wikipedia of 2016 that mwparserfromhell's
and gensim's tests share: `random.Random(0).sample` of the sorted titles of its articles of 2,000
to 20,000 characters that are not disambiguations; labelled before we looked at our text of them.
It lists the lines of the wikitext that are the article, lead to last list, without tables,
captions, notes on sources and the sections of links at the end; and for each template on them, in
order, what a reader sees in its place (null: its first argument). `shown` writes those lines out,
by rules that are simpler than ours and know no templates. F1 compares the words of a page as a bag.
"""

import argparse
import html
import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import mwparserfromhell

from pipeline.ingest.documents.sniff import sniff
from pipeline.ingest.extraction import mediawiki
from pipeline.ingest.extraction.formats import format_of
from pipeline.ingest.wikitext.prose import prose
from pipeline.ingest.wikitext.wiki import Wiki
from tests.benchmarks.bench_web import mean_scores
from tests.benchmarks.timing import in_turn, median

ROUNDS = 3
HOLE = re.compile(r"\( ?[;,:]|[;,] ?\)|\( ?\)| [,;](?= )|, ?,")


def articles(dump: str) -> dict[str, str]:
    """Wikitext of the pages that are not dropped unread, by page number."""
    wikitexts: list[str] = []
    mediawiki.prose = lambda wikitext, wiki: wikitexts.append(wikitext) or "x"  # type: ignore[func-returns-value]
    source = sniff(dump, "wikipedia", "dump")
    read = format_of(source).begin(source)
    return dict(zip([page.id for page in read if page.text], wikitexts, strict=True))


def shown(wikitext: str, label: dict[str, Any]) -> str:
    """The text that a reader sees of the labelled lines."""
    lines = wikitext.split("\n")
    assert len(lines) == label["lines"], f"{label['title']} is another revision"
    text = "\n".join("\n".join(lines[first : last + 1]) for first, last in label["main"])
    text = re.sub(r"<!--.*?-->|<ref[^<>]*/>|<(ref|math)\b.*?</\1>", "", text, flags=re.DOTALL)
    said: Iterator[str | None] = iter(label["templates"])

    def in_its_place(template: re.Match[str]) -> str:
        here = next(said)
        return template[1].partition("|")[2] if here is None else here

    text = re.sub(r"\{\{(.*?)\}\}", in_its_place, text, flags=re.DOTALL)
    assert next(said, "end") == "end", f"{label['title']} has fewer templates"
    text = re.sub(r"\[\[(?:[^][|]*\|)?([^][]*)\]\]", r"\1", text)
    text = re.sub(r"\[\w+://\S+ ?([^]]*)\]", r"\1", text)
    return html.unescape(re.sub(r"<[^<>]*>|'{2,}", "", text))


def folded(text: str) -> str:
    """Raised figures as plain ones: 10⁷ as 107, as in the content of a tag."""
    return unicodedata.normalize("NFKC", text)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("dump")
    parser.add_argument("--labels", type=Path, default=Path(__file__).parent / "wiki_labels.json")
    given = parser.parse_args()
    pages = articles(given.dump)
    ways: dict[str, Callable[[str], str]] = {
        "ours": lambda page: prose(page, Wiki(language="en")),
        "strip_code": lambda page: str(mwparserfromhell.parse(page).strip_code()),
    }
    texts: dict[str, dict[str, str]] = {}

    def convert(name: str) -> None:
        texts[name] = {number: ways[name](page) for number, page in pages.items()}

    found = in_turn({name: partial(convert, name) for name in ways}, ROUNDS)
    size = sum(len(page.encode()) for page in pages.values())
    labels = [one for one in json.loads(given.labels.read_bytes()) if one["page"] in pages]
    gold = {label["page"]: folded(shown(pages[label["page"]], label)) for label in labels}
    print(f"{len(pages)} articles, {size / 1e6:.1f} MB of wikitext, {len(gold)} pages labelled")
    for name, said in texts.items():
        holes = sum(len(HOLE.findall(text)) for text in said.values())
        prose_size = sum(map(len, said.values())) / 1e6
        print(
            f"{name}: {size / median(found[name]).cpu / 1e6:.2f} MB/s of wikitext, "
            f"{prose_size:.2f} MB of text, {holes} holes"
        )
        if gold:
            print(f"{name}: {mean_scores({page: folded(said[page]) for page in gold}, gold)}")


if __name__ == "__main__":
    main()

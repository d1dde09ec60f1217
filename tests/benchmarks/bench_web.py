"""Pages of WARC files to main text: speed per core and token F1, compared with datatrove.

    python -m tests.benchmarks.bench_web WARC... --peer PYTHON [--labels LABELS]

Theirs is WarcReader and the Trafilatura extractor with their defaults, run by PYTHON, a separate
environment with datatrove[io] and trafilatura. Ours is the whole reader: main text, language,
repeated lines. CPU seconds, including child processes, without start-up; alternating, medians.

LABELS (web_labels.json) names pages by the ids of their records, and for each the blocks of text,
in the order of the page, that are its main text. It holds no text: the user provides the WARC files
(the labelled ones come with the tests of allenai/dolma and chatnoir-resiliparse). F1 compares the
words of a page as a bag; a page that a side drops has none.

web_labels.json has the pages that our rules were developed on. web_held_out.json has eight others:
`random.Random(0).sample` of the sorted addresses of the 19 further HTML pages in these files with
1,400 characters or more (without the catalogue of clueweb-quirk), labelled before we looked at our
text of them; rules must not be changed for them.
"""

import argparse
import json
import re
import statistics
from collections import Counter
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

from resiliparse.parse.encoding import bytes_to_str, detect_encoding

from pipeline.ingest.documents.records import Extract
from pipeline.ingest.documents.sniff import sniff
from pipeline.ingest.extraction.warc import WarcRecord, parse_response, read_records
from tests.benchmarks.timing import Seconds, peer, rounds
from tests.pipeline.ingest.web_archive import whole_web_file

ROUNDS, TIMES = 5, 5
PEER = """
import json, logging, resource, sys
from pathlib import Path
import trafilatura  # before the extractor forks
from datatrove.pipeline.extractors import Trafilatura
from datatrove.pipeline.readers import WarcReader
from loguru import logger
logger.remove()

def cpu():
    return sum(r.ru_utime + r.ru_stime for r in map(resource.getrusage, (0, -1)))

def read():
    for path in map(Path, sys.argv[2:]):
        reader = WarcReader(str(path.parent), glob_pattern=path.name)
        yield from Trafilatura().run(reader.run())

for line in sys.stdin:
    began_at = cpu()
    for _ in range(int(sys.argv[1])):
        texts = {document.id.strip("<>"): document.text for document in read()}
    print(json.dumps([cpu() - began_at, texts]), flush=True)
"""

INLINE = {
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "dfn", "em", "font",
    "i", "ins", "kbd", "label", "mark", "q", "rp", "rt", "ruby", "s", "samp", "small", "span",
    "strike", "strong", "sub", "sup", "time", "tt", "u", "var", "wbr",
}  # fmt: skip
UNSEEN = {"script", "style", "noscript", "template", "svg", "head", "iframe", "object"}


class Blocks(HTMLParser):
    """The texts of a page between tags that start a line."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.parts: list[str] = []
        self.unseen = 0
        self.feed(markup)
        self.close()
        self.end_block()

    def end_block(self) -> None:
        text = " ".join("".join(self.parts).split())
        self.parts = []
        self.found += [text] if text else []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.unseen += tag in UNSEEN
        if tag not in INLINE:
            self.end_block()

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        if tag not in INLINE:
            self.end_block()

    def handle_endtag(self, tag: str) -> None:
        self.unseen = 0 if tag == "body" else max(0, self.unseen - (tag in UNSEEN))
        if tag not in INLINE:
            self.end_block()

    def handle_data(self, data: str) -> None:
        if not self.unseen:
            self.parts.append(data)


def ours(paths: list[str]) -> dict[str, str]:
    """The texts by record id."""
    return {
        item.id: item.text
        for path in paths
        for item in whole_web_file(sniff(path, "cc-news", path))
        if isinstance(item, Extract) and item.text
    }


def main_texts(paths: list[str], labels: Path) -> dict[str, str]:
    """The labelled main text of the pages, by record id."""
    marked = {page["record"].strip("<>"): page for page in json.loads(labels.read_bytes())}
    texts = {}
    for path in paths:
        for record in read_records(sniff(path, "cc-news", path)):
            if not isinstance(record, WarcRecord):
                continue
            name = record.headers.get("warc-record-id", "").strip("<>")
            if name in marked:
                body = parse_response(record.block).body
                markup = bytes_to_str(body, detect_encoding(body, from_html_meta=True))
                blocks = Blocks(str(markup)).found
                assert len(blocks) == marked[name]["blocks"], f"{name} is another page"
                chosen = [blocks[first : last + 1] for first, last in marked[name]["main"]]
                texts[name] = "\n".join(block for part in chosen for block in part)
    return texts


def scores(text: str, gold: str) -> tuple[float, float, float]:
    """Precision, recall and F1 of words."""
    said, meant = (Counter(re.findall(r"\w+", words.lower())) for words in (text, gold))
    common = (said & meant).total()
    if not common:
        nothing = float(not said and not meant)  # a page without main text that is dropped
        return nothing, nothing, nothing
    precision, recall = common / said.total(), common / meant.total()
    return precision, recall, 2 * precision * recall / (precision + recall)


def mean_scores(texts: Mapping[str, str], gold: Mapping[str, str]) -> str:
    """Of all pages that have a label; one that is missing has no text."""
    rows = (scores(texts.get(page, ""), text) for page, text in gold.items())
    means = (f"{statistics.mean(column):.3f}" for column in zip(*rows))
    return f"precision, recall, F1 {', '.join(means)}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("warc", nargs="+")
    parser.add_argument("--peer", required=True)
    parser.add_argument("--labels", type=Path, default=Path(__file__).parent / "web_labels.json")
    given = parser.parse_args()
    paths = [str(Path(path).absolute()) for path in given.warc]
    size, seconds, texts = measure(paths, given.peer, TIMES)
    gold = main_texts(paths, given.labels)
    print(f"{size / 1e6:.1f} MB of pages, {len(gold)} of them labelled")
    for name, taken in seconds.items():
        print(
            f"{name}: {size / taken / 1e6:.1f} MB/s, {len(texts[name])} pages kept; "
            f"{mean_scores(texts[name], gold)}"
        )


def measure(
    paths: list[str], peer_python: str, times: int
) -> tuple[int, dict[str, float], dict[str, dict[str, str]]]:
    """Bytes of the pages; of each side CPU seconds to read them once, and texts by record."""
    size = sum(
        len(item.block)
        for path in paths
        for item in read_records(sniff(path, "cc-news", path))
        if isinstance(item, WarcRecord) and item.headers["warc-type"] == "response"
    )
    seconds: dict[str, list[float]] = {"ours": [], "datatrove": []}
    texts: dict[str, dict[str, str]] = {}

    def read() -> None:
        for _ in range(times):
            texts["ours"] = ours(paths)

    with peer(peer_python, PEER, times, *paths) as ask:
        for counted in rounds(ROUNDS):
            own = Seconds.of(read).cpu
            theirs, texts["datatrove"] = ask()
            if counted:
                seconds["ours"].append(own)
                seconds["datatrove"].append(theirs)
    return size, {name: statistics.median(taken) / times for name, taken in seconds.items()}, texts


if __name__ == "__main__":
    main()

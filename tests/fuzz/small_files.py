"""Files that people and other commands write: reports, scores, tasks, arms, published lists."""

import gzip
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.downstream.reading.layouts import Layout, read_examples
from pipeline.downstream.reading.tables import TableColumns
from pipeline.experiments.ablation import make_arms
from pipeline.experiments.arms import arms_from_file
from pipeline.ingest.corpora import common_crawl, wikimedia
from pipeline.reporting.renderings import as_page, as_text
from pipeline.reporting.run_summary import read_run
from pipeline.reporting.score_files import read_scores, scored_encoder
from pipeline.reporting.sections import make_report
from tests.fuzz.mutations import as_json, bytes_mutated, json_mutated, value_mutated
from tests.pipeline.remote.publishers import Publisher
from tests.pipeline.reporting.small_runs import write_run
from tests.pipeline.reporting.test_score_files import FINE_TUNED, ZERO_SHOT

Read = Callable[[Path, Random, Path], Iterator[str]]
"""Writes a case into a new folder, the last argument, and reads it; yields the reasons to count.
The first argument is the folder of the good input."""

# --- Reports and scores


def report_case(good: Path, random: Random, place: Path) -> Iterator[str]:
    """A run directory with one file changed, as text and as a page."""
    run = place / "run"
    shutil.copytree(good, run)
    name = random.choice(("metrics.jsonl", "metrics.jsonl", "run.json", "history.tsv"))
    content = (run / name).read_bytes()
    if name == "metrics.jsonl":
        lines = content.splitlines(keepends=True)
        for at in random.sample(range(len(lines)), random.choice((1, 1, 5, 50))):
            lines[at] = json_mutated(lines[at], random) + b"\n"
        content = b"".join(random.sample(lines, len(lines)) if random.random() < 0.2 else lines)
    elif name == "run.json":
        content = json_mutated(content, random)
    else:
        content = bytes_mutated(content, random, (b"\t", b"\n", b"9999-99-99T", b"\xff"))
    (run / name).write_bytes(content)
    summary = read_run(run)
    yield "problems" if summary.problems else "no problems"
    report = make_report([summary], [], "again")
    assert as_text(report).encode(errors="replace") and as_page(report)


def build_report(good: Path) -> None:
    """A run with enough lines for curves to be thinned."""
    write_run(good, steps=600)


def scores_case(_: Path, random: Random, place: Path) -> Iterator[str]:
    """Scores of finetune and of evaluate, in a report and for an export."""
    path = place / "scores.json"
    path.write_bytes(json_mutated(as_json(random.choice((FINE_TUNED, ZERO_SHOT))), random))
    scored_encoder(path)
    report = make_report([], read_scores(path), "again")
    assert as_text(report).encode(errors="replace") and as_page(report)
    yield "scores"


# --- Tasks

_ROWS: dict[str, tuple[TableColumns, list[dict[str, Any]]]] = {
    "classification": (TableColumns(texts=("a", "b"), label="y", id="id"),
                       [{"id": 1, "a": "One é.", "b": "Two.", "y": "yes"}]),
    "regression": (TableColumns(texts=("a",), label="y"), [{"a": "One.", "y": 0.5}]),
    "choices": (TableColumns(texts=("a",), label="y", choices=("c",)),
                [{"a": "One?", "c": ["x", "y"], "y": 1}]),
    "spans": (TableColumns(texts=("q", "p"), label="y", start="s"),
              [{"q": "Who?", "p": "It is me.", "y": "me", "s": 6},
               {"q": "Who?", "p": "It is me.", "y": {"text": ["me"], "answer_start": [6]},
                "s": ""}]),
    "tags": (TableColumns(texts=("w",), label="y"), [{"w": ["A", "b"], "y": ["O", "B-x"]}]),
}  # fmt: skip
"""By kind, columns and rows of a file."""


def tasks_case(_: Path, random: Random, place: Path) -> Iterator[str]:
    """Files of every kind of task, as JSON lines, Parquet, with separators and a word per line."""
    kind = random.choice(list(_ROWS))
    columns, rows = _ROWS[kind]
    rows = rows * 4
    if random.random() < 0.6:
        path = place / "task.jsonl"
        lines = [as_json(row) for row in rows]
        at = random.randrange(len(lines))
        lines[at] = json_mutated(lines[at], random)
        path.write_bytes(b"\n".join(lines))
    elif random.random() < 0.2:
        path = place / "task.parquet"
        pq.write_table(pa.Table.from_pylist(rows[:1] * 4), path)
        path.write_bytes(bytes_mutated(path.read_bytes(), random, (b"\0", b"PAR1")))
    elif kind == "tags" and random.random() < 0.5:
        path = place / "task.conll"
        words = (b"\t", b"\n\n", b"#", b"1-2", b"\xff")
        path.write_bytes(bytes_mutated(_CONLL_U, random, words))
        columns = random.choice((columns, TableColumns(texts=("FORM",), label="UPOS")))
    else:
        path = place / f"task.{random.choice(('csv', 'tsv', 'txt'))}"
        separator = "," if path.suffix == ".csv" else "\t"
        names = list(rows[0])
        cells = [[_cell(row[name]) for name in names] for row in rows]
        text = "\n".join(separator.join(row) for row in (names, *cells))
        path.write_bytes(bytes_mutated(text.encode(), random, _TABLE_WORDS))
    if random.random() < 0.1:
        columns = replace(columns, label="")
    layout: Layout = random.choice(("table", ""))
    table = read_examples(path, columns, kind, layout, is_published=random.random() < 0.3)
    yield kind if table.examples else "nothing"


_CONLL_U = b"""# sent_id = 1
1\tDogs\tdog\tNOUN\tNNS\t_\t2\tnsubj\t_\t_
2\trun\trun\tVERB\tVB\t_\t0\troot\t_\t_

1\tNo\tno\tINTJ\tUH\t_\t0\troot\t_\t_
"""


_TABLE_WORDS = (
    b'"', b",", b"\t", b"\n", b"\r", b"\0", b"\xff", b"9" * 5000, b"nan", "²".encode(),
)  # fmt: skip


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(value)
    return "me" if isinstance(value, dict) else str(value)


# --- Arms

_ARMS = [["heads-2", "roberta_tiny", ["encoder.heads=2"]], ["heads-4", "roberta_tiny", []]]
_LINES = (
    b"import sys\nsys.exit()", b"sys.exit(3)", b"raise SystemExit('x')",
    b"1 / 0", b"raise BaseException", b"raise GeneratorExit", b"ARMS = ", b"\n", b"\0", b"(", b"\t",
)  # fmt: skip


def arms_case(_: Path, random: Random, place: Path) -> Iterator[str]:
    """A Python file with arms of any types, or with any code."""
    path = place / "arms.py"
    arms = _ARMS if random.random() < 0.3 else value_mutated(_ARMS, random)
    made = ", ".join(
        f"Arm(*{one!r})" if isinstance(one, list | str | dict) else repr(one)
        for one in (arms if isinstance(arms, list) else [arms])
    )
    text = (
        "from pipeline.experiments.arms import Arm\nnan, inf = float('nan'), float('inf')\n"
        f"ARMS = [{made}]\n"
    ).encode(errors="backslashreplace")
    path.write_bytes(bytes_mutated(text, random, _LINES) if arms is _ARMS else text)
    make_arms(arms_from_file(path), random.choice(((), ("data.duplicates=1",))), 0)
    yield "arms"


# --- Lists of publishers

_MONTH, _DUMP = "2019-02", "enwiki/20260101"


def lists_case(_: Path, random: Random, place: Path) -> Iterator[str]:
    """What a publisher says, and what was kept of it."""
    server = Publisher()
    server.put_month(_MONTH, {f"0000{n}": b"a" for n in range(3)})
    server.put_dump(_DUMP, {"1.xml-p1p2.bz2": b"one", "2.xml-p3p4.bz2": b"two"})
    answers = server.files
    for module in (common_crawl, wikimedia):
        module.read_small = lambda url: answers[urlsplit(url).path.removeprefix("/")]
    common_crawl.look_up = lambda url: (1, "v")
    is_month = random.random() < 0.5

    def listed() -> int:
        if is_month:
            return len(common_crawl.list_months([_MONTH], place))
        return len(wikimedia.list_dump(_DUMP, place))

    if random.random() < 0.4:
        listed()
        [kept] = place.rglob("*.json")
        kept.write_bytes(json_mutated(kept.read_bytes(), random))
    elif is_month:
        path = next(path for path in answers if path.endswith("warc.paths.gz"))
        text = bytes_mutated(gzip.decompress(answers[path]), random, (b"/", b"..", b"\n", b" "))
        packed = gzip.compress(text)
        answers[path] = packed if random.random() < 0.6 else bytes_mutated(packed, random)
    else:
        path = f"{_DUMP}/dumpstatus.json"
        answers[path] = json_mutated(answers[path], random)
    yield "files" if listed() else "none"

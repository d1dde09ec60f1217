"""`--dry-run` compared with the shards prepared afterwards."""

import gzip
import json
import lzma
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import zstandard

from pipeline.costs.preparation import corpus_estimate as module
from pipeline.costs.preparation import raw_sample
from pipeline.costs.preparation.corpus_estimate import CorpusEstimate, estimate_corpora
from pipeline.costs.preparation.dry_run import describe_estimate
from pipeline.costs.preparation.stage_time import cpu_seconds
from pipeline.data.preparation.worker import PrepareJob, Worker
from pipeline.data.text.documents import DocumentBatch, DocumentCounts
from pipeline.data.text.text_tasks import SPLIT_BYTES, SplitTask
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.ingest.documents.records import BadRecord, Dropped, Piece, Record
from pipeline.recipes import recipe
from tests.golden.formats import zipped
from tests.pipeline.ingest.web_archive import members, response
from tests.pipeline.preparing import write_jsonl

WORDS = "the rain fell on an old house and nobody there minded it at all until dawn"


def document(number: int) -> str:
    """20 to 300 words that rarely repeat, so that they compress like text."""
    state = number + 1
    words = []
    for _ in range(20 + number * 7919 % 280):
        state = state * 1103515245 + 12345 & 0x7FFFFFFF
        words.append(WORDS.split()[state >> 16 & 15] + (str(state % 97) if state & 1024 else ""))
    return " ".join(words).capitalize() + "."


def crawl() -> list[bytes]:
    return [response(f"<p>{text}</p>", f"http://a.org/{n}") for n, text in enumerate(TEXTS)]


TEXTS = [document(number) for number in range(3000)]
LINES = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
ZSTD = zstandard.ZstdCompressor(level=3)
About = Callable[..., CorpusEstimate]


@pytest.fixture
def about(tiny_vocabulary: Vocabulary) -> About:
    """The estimate of a corpus of a file or a folder."""

    def about(path: Path, name: str = "news") -> CorpusEstimate:
        _, sources = corpus_sources(name, [str(path)])
        job = PrepareJob(
            Path("/nonexistent"), recipe("roberta_tiny").data, (name,), {}, SPLIT_BYTES, "none",
            "fast",
        )  # fmt: skip
        return estimate_corpora(sources, job, tiny_vocabulary)[name]

    return about


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stands for `time`: only what a test adds to `now` takes time."""
    clock = SimpleNamespace(now=0.0, process_time=lambda: clock.now)
    for timed in (module, raw_sample):
        monkeypatch.setattr(timed, "time", clock)
    return clock


WRITERS: dict[str, Callable[[Path], object]] = {
    "plain.jsonl": lambda path: path.write_text(LINES),
    "blank.txt": lambda path: path.write_text("\n\n".join(TEXTS)),
    "packed.gz": lambda path: path.write_bytes(gzip.compress(LINES.encode())),
    "packed.xz": lambda path: path.write_bytes(lzma.compress(LINES.encode())),
    "packed.zst": lambda path: path.write_bytes(ZSTD.compress(LINES.encode())),
    "packed.warc.gz": lambda path: path.write_bytes(members(crawl())),
    "marked": lambda path: path.write_text(
        "".join(f'<doc id="{n}" title="{n}">\n{text}\n</doc>\n' for n, text in enumerate(TEXTS))
    ),
    "table.parquet": lambda path: pq.write_table(
        pa.table({"text": TEXTS}), path, row_group_size=1000
    ),
    "table.csv": lambda path: path.write_text(
        "id,text\n" + "".join(f'{n},"{text}\nMore."\n' for n, text in enumerate(TEXTS))
    ),
    "table.arrow": lambda path: feather.write_feather(
        pa.table({"text": TEXTS}), path, "uncompressed", chunksize=100
    ),
    "packed.zip": lambda path: path.write_bytes(zipped({"lines.jsonl": LINES.encode()})),
    "array.json": lambda path: path.write_text(json.dumps([{"text": text} for text in TEXTS])),
}
FAST = ("plain.jsonl", "packed.gz", "packed.warc.gz", "packed.zip", "table.parquet")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in WRITERS]
)
def test_a_sample_estimates_the_whole(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, about: About
) -> None:
    """A quarter of the text is read, of compressed files in whole blocks of up to 128 KB."""
    near = 0.2 if name.startswith("packed") else 0.1
    monkeypatch.setattr(raw_sample, "SAMPLE_BYTES", len(LINES) // 4)
    WRITERS[name](tmp_path / name)
    found = about(tmp_path / name)
    assert found.documents == pytest.approx(3000, rel=near)
    assert found.text == pytest.approx(sum(map(len, TEXTS)), rel=near)
    *units, choice = found.units
    assert cpu_seconds(units) == pytest.approx(found.seconds) and found.seconds > 0
    assert choice.stage == "hold out" and found.times(7).units[-1] == choice
    assert cpu_seconds(found.times(7).units[:-1]) == pytest.approx(7 * found.seconds)
    extraction = [unit.name for unit in units if unit.stage == "extract"]
    is_read = name.endswith((".jsonl", ".parquet", ".arrow", "d.gz", "d.xz", "d.zst"))
    assert extraction == ([] if is_read else [name])
    assert {unit.name for unit in units} - {"a split"} == {name}


def test_what_a_part_costs_by_itself_is_not_multiplied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace, about: About
) -> None:
    """Start-up and restarts of the encoder take time once, the text takes it by the byte."""
    do, done = Worker.do, list[int]()

    def slow(worker: Worker, task: SplitTask) -> None:
        restarts = len(done) in (0, 2)
        clock.now += 0.01 + 0.1 * restarts + 1e-7 * task.weight
        done.append(task.weight)
        do(worker, task)

    monkeypatch.setattr(Worker, "do", slow)
    monkeypatch.setattr(raw_sample, "SAMPLE_BYTES", len(LINES) // 8)
    WRITERS["plain.jsonl"](tmp_path / "plain.jsonl")
    assert about(tmp_path).seconds == pytest.approx(0.01 + 1e-7 * len(LINES), rel=0.05)


def test_reading_of_a_table_is_timed_over_whole_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace, about: About
) -> None:
    """The first row of a batch takes as long as all of them, and a sample has many first rows."""
    given = raw_sample.read

    def read(piece: Piece) -> Iterator[Record | Dropped | BadRecord]:
        for number, record in enumerate(given(piece)):
            clock.now += float(number % 100 == 0 and piece.source.format == "parquet")
            yield record

    monkeypatch.setattr(raw_sample, "read", read)
    monkeypatch.setattr(raw_sample, "SAMPLE_BYTES", len(LINES) // 8)
    monkeypatch.setattr(raw_sample, "SPLIT_BYTES", len(LINES) // 12)
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "table.parquet", row_group_size=100)
    assert about(tmp_path).seconds == pytest.approx(30, rel=0.25)


def test_a_file_that_cannot_be_cut_bounds_the_time(tmp_path: Path, about: About) -> None:
    """Of two files of equal text, one is a single unit: more workers do not help."""
    for name in ("plain.jsonl", "packed.gz"):
        WRITERS[name](tmp_path / name)
    found = about(tmp_path)
    longest = max(found.units, key=lambda unit: unit.seconds)
    lines = describe_estimate({"news": found}, [], 64)
    assert f"bound by {longest.name}, which one worker does alone" in lines[-1]


def test_books_are_sampled_whole(tmp_path: Path, about: About) -> None:
    for number in range(40):
        (tmp_path / f"{number}.txt").write_text(document(5))
    assert about(tmp_path, "bookcorpus").documents == pytest.approx(40)


@pytest.mark.parametrize(
    ("documents", "ending", "pieces"),
    [(1, "txt", 1), (1, "txt", 7), (2, "txt", 7), (6, "jsonl", 7)],
)
def test_documents_far_longer_than_the_sample(
    documents: int, ending: str, pieces: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    about: About,
) -> None:  # fmt: skip
    """Of each only the start is prepared, and one that goes through many pieces counts once."""
    size, step = sum(map(len, TEXTS)), 3000 // documents
    monkeypatch.setattr(raw_sample, "SAMPLE_BYTES", size // 20)
    monkeypatch.setattr(raw_sample, "SPLIT_BYTES", size // pieces + 1)
    giants = ["\n".join(TEXTS[n : n + step]) for n in range(0, 3000, step)]
    for name in "abc":
        path = tmp_path / f"{name}.{ending}"
        if ending == "txt":
            path.write_text("\n\n".join(giants))
        else:
            write_jsonl(path, giants)
    given, prepared = Worker.do, list[int]()

    def do(worker: Worker, task: SplitTask) -> None:
        prepared.append(task.weight)
        given(worker, task)

    monkeypatch.setattr(Worker, "do", do)
    found = about(tmp_path)
    assert found.text == pytest.approx(3 * size, rel=0.1)
    assert found.documents == pytest.approx(3 * documents, rel=0.35)
    assert max(prepared) < size / 4


def test_few_documents_are_read_once_more_to_choose_the_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace, about: About
) -> None:
    """By one process: more workers do not help. Of many, only the first 2,000 are read."""
    given = module.read_batches

    def read_batches(
        pieces: tuple[Piece, ...], seed: int, counts: DocumentCounts
    ) -> Iterator[DocumentBatch]:
        for batch in given(pieces, seed, counts):
            clock.now += len(batch.ids)
            yield batch

    monkeypatch.setattr(module, "read_batches", read_batches)
    for count, seconds in ((1000, 1000), (3000, 2000)):
        found = about(write_jsonl(tmp_path / f"{count}.jsonl", TEXTS[:count]))
        assert found.units[-1].seconds == pytest.approx(seconds)
        line = describe_estimate({"news": replace(found, seconds=1.0)}, [], 64)[-1]
        assert "bound by the choice of held-out documents, which one worker does alone" in line

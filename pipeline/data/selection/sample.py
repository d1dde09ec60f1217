"""A sample of a corpus's text: every split gives its share from its start.

So the sample is the same on every machine, and little more than the sample is read: 1 GiB of 160 GB
are 210 kB of each of 5,000 splits.

Runs without white space, such as DNA, base64 and long URLs, are cut: the trainers take time that
grows with the square of the longest one, and no token needs more of it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.base.files import whole_file
from pipeline.base.progress import tracked
from pipeline.base.publish import scratch_folder
from pipeline.data.selection.decisions import read_kept
from pipeline.data.text.documents import DocumentCounts, add_counts
from pipeline.data.text.giants import run_end
from pipeline.data.text.text_tasks import SplitTask, cut_tasks
from pipeline.execution.workers import Executor, Stage
from pipeline.ingest.documents.records import Source

LEAST_SHARE = 1 << 16
"""Bytes of a split for which its file is opened; a small sample leaves splits out."""
LONGEST_RUN = 1 << 12
"""Characters without white space after which a text is cut. Of 300 kB of DNA, byte-level BPE needs
1.5 s with runs of 4,000, 2.5 s with 10,000, and over 30 s with 100,000."""
LONG_RUNS = "with long runs without white space"
"""What is noted of documents that were cut."""
_FILE_BYTES = 16 << 20
"""Text that a task samples to one file."""
_COUNTS = b"tenfold_counts"
_ROWS = 256


@dataclass(frozen=True, slots=True)
class SplitShare:
    """The text that one split gives to a sample."""

    task: SplitTask
    size: int
    """Bytes of cleaned text; the document that reaches it is taken whole."""

    def texts(self, counts: DocumentCounts) -> Iterator[str]:
        """Its documents, cleaned; counts: gets what was read."""
        taken = 0
        few = self.size // 4 + 1  # so that few are read in vain
        for batch in read_kept(self.task.pieces, self.task.decisions, 0, counts, few):
            for start, stop in itertools.pairwise(batch.offsets.tolist()):
                counts.documents += 1
                counts.bytes += stop - start - 1
                taken += stop - start - 1
                text = batch.buffer[start : stop - 1].tobytes().decode()
                cut = _without_long_runs(text)
                if cut is not text:
                    add_counts(counts.noted, {LONG_RUNS: 1})
                yield cut
                if taken >= self.size:
                    return


@dataclass(frozen=True, slots=True)
class SampleTask:
    """Shares that one worker takes to one file."""

    number: int
    shares: tuple[SplitShare, ...]

    @property
    def weight(self) -> int:
        """Bytes of text; a small corpus has fewer than its shares ask for."""
        return sum(min(share.size, share.task.weight) for share in self.shares)

    @property
    def name(self) -> str:
        """Its description in logs."""
        return f"sample {self.number}"

    @property
    def marker(self) -> str:
        """Name of its file."""
        return f"sample-{self.number:06d}.parquet"


def cut_shares(
    sources: list[Source], sample_bytes: int, decided: list[SplitTask] | None = None
) -> list[SplitShare]:
    """The shares of all splits, or of as many as give LEAST_SHARE, `sample_bytes` in total.

    decided: the splits, with decisions that drop documents; None: all documents are kept.
    """
    tasks = decided or cut_tasks(sources, finer=1)  # so that all of the text gives its share
    most = min(len(tasks), max(1, sample_bytes // LEAST_SHARE))
    # at even distances, so that a small sample still has text of every large corpus
    chosen = [tasks[index * len(tasks) // most] for index in range(most)]
    total = max(sum(task.weight for task in chosen), 1)
    return [SplitShare(task, max(1, sample_bytes * task.weight // total)) for task in chosen]


def sample_texts(
    sources: list[Source],
    sample_bytes: int,
    counts: DocumentCounts,
    decided: list[SplitTask] | None = None,
) -> Iterator[str]:
    """Cleaned documents, `sample_bytes` in total, read by this process; counts: gets what was read;
    decided: as `cut_shares` takes it.

    For small samples, see `stored_sample`.
    """
    for share in tracked(cut_shares(sources, sample_bytes, decided), "sampling text", "splits"):
        yield from share.texts(counts)


@contextmanager
def stored_sample(
    sources: list[Source],
    sample_bytes: int,
    directory: Path,
    executor: Executor,
    decided: list[SplitTask] | None = None,
) -> Iterator[tuple[Callable[[], Iterator[str]], DocumentCounts]]:
    """A function that reads the documents of `sample_texts`, which all workers have stored, and
    their counts.

    directory: the sample is next to it until the block ends; decided: as `cut_shares` takes it.
    """
    shares, tasks = cut_shares(sources, sample_bytes, decided), list[SampleTask]()
    while shares:
        ends = itertools.accumulate(share.size for share in shares)
        number = max(1, sum(end <= _FILE_BYTES for end in ends))
        tasks.append(SampleTask(len(tasks), tuple(shares[:number])))
        shares = shares[number:]
    with scratch_folder(directory) as folder:
        executor.run(Stage(folder, partial(_start, folder)), tasks)
        counts = DocumentCounts()
        for task in tasks:
            # counts come in the footer, since tasks may have run on other machines
            stored = pq.read_schema(folder / task.marker).metadata[_COUNTS]
            counts.add(DocumentCounts(**json.loads(stored)))
        yield partial(_read, [folder / task.marker for task in tasks]), counts


def _without_long_runs(text: str) -> str:
    """The text with a newline in each long run; the text itself if it has none."""
    parts, start = [], 0
    while (stop := run_end(text, start, len(text), LONGEST_RUN)) >= 0:
        parts.append(text[start:stop])
        start = stop
    return "\n".join([*parts, text[start:]]) if parts else text


def _start(folder: Path) -> Callable[[SampleTask], None]:
    return partial(_store, folder)


def _store(folder: Path, task: SampleTask) -> None:
    counts = DocumentCounts()
    texts = [text for share in task.shares for text in share.texts(counts)]
    table = pa.table({"text": pa.array(texts, pa.large_string())})
    table = table.replace_schema_metadata({_COUNTS: json.dumps(asdict(counts))})
    with whole_file(folder / task.marker, lasting=False) as temporary:
        # lz4: it is read once, soon, and then removed
        pq.write_table(table, temporary, compression="lz4", use_dictionary=False)


def _read(files: list[Path]) -> Iterator[str]:
    for path in tracked(files, "reading the sample", "files"):
        with pq.ParquetFile(path, pre_buffer=False) as file:
            for batch in file.iter_batches(_ROWS):
                yield from batch.column(0).to_pylist()

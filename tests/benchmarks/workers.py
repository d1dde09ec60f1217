"""A worker of `prepare` in this process, whose CPU seconds benchmarks measure."""

from pathlib import Path

from pipeline.config.data_settings import DataSettings
from pipeline.data.preparation.worker import PrepareJob, Worker
from pipeline.data.shards.arrow_files import Compression
from pipeline.data.text.text_tasks import SPLIT_BYTES, cut_tasks
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.ingest.corpora.sources import corpus_sources

CORPUS = "bench"


def new_worker(
    directory: Path, data: DataSettings, vocabulary: Vocabulary, compression: Compression = "none"
) -> Worker:
    """With a new directory for its parts; one in 200 documents is held out."""
    directory.mkdir()
    thresholds = {CORPUS: 2**64 // 200}
    job = PrepareJob(directory, data, (CORPUS,), thresholds, SPLIT_BYTES, compression, "fast")
    return Worker.create(job, vocabulary)


def do_file(worker: Worker, path: Path) -> None:
    """All tasks of a file, to parts on disk."""
    for task in cut_tasks(corpus_sources(CORPUS, [str(path)])[1]):
        worker.do(task)


def do_next(unused: list[Worker], path: Path) -> None:
    """The same by a worker that is new: it has not seen a word yet."""
    do_file(unused.pop(), path)

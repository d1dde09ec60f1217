"""JSONL -> shards with ten masks: ours and the common datasets + collator path, in one run.

    python -m tests.benchmarks.bench_prepare [--megabytes 70]

The common path: `datasets.map` with a transformers tokenizer, `group_texts` from run_mlm.py, ten
passes of DataCollatorForLanguageModeling, int64 columns as zstd Arrow files. One core each: CPU
seconds of one thread, without start-up and compilation. The last figure is the whole command,
start-up included.
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"

import functools
import operator

import datasets
import pyarrow as pa
import torch
from transformers import AutoTokenizer, DataCollatorForLanguageModeling, PreTrainedTokenizerBase

from pipeline.config.settings import override
from pipeline.data.preparation.worker import PrepareJob, Worker
from pipeline.data.rows.masks import Masking
from pipeline.data.text.text_tasks import SPLIT_BYTES, cut_tasks
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.recipes import recipe
from tests.benchmarks.text import write_jsonl
from tests.benchmarks.vocabulary import bench_vocabulary

ROUNDS = 3
NEXT, ORDER = "data.segments.label=next", "data.segments.label=order"
FORMATS = {
    "full sentences": (),
    "doc sentences": ("data.format=doc_sentences",),
    "single segment": ("data.format=single_segment",),
    "segment pair, next": ("data.format=segment_pair", NEXT),
    "segment pair, order": ("data.format=segment_pair", ORDER),
    "sentence pair, next": ("data.format=sentence_pair", NEXT),
    "sentence pair, order": ("data.format=sentence_pair", ORDER),
}
MASKS = {
    "token": (),
    "whole word": ("data.masking=whole_word",),
    "n-gram": ("data.masking=ngram",),
    "span": ("data.masking=span",),
    "electra": (
        *("data.masking=electra", "data.masks.mask_share=0.85", "data.masks.random_share=0"),
    ),
}
PEER_BYTES = 1_500_000


def usual_path(path: Path, tokenizer: PreTrainedTokenizerBase, work: Path) -> None:
    """The common path, on one file."""
    raw = datasets.Dataset.from_json(str(path), cache_dir=str(work / "cache"))

    def tokenize(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        return dict(tokenizer(batch["text"], return_special_tokens_mask=True))

    def group_texts(batch: dict[str, list[list[int]]]) -> dict[str, list[list[int]]]:
        joined = {key: functools.reduce(operator.iadd, values, []) for key, values in batch.items()}
        total = len(joined["input_ids"]) // 512 * 512
        return {k: [v[i : i + 512] for i in range(0, total, 512)] for k, v in joined.items()}

    tokens = raw.map(tokenize, batched=True, remove_columns=raw.column_names)
    rows = tokens.map(group_texts, batched=True)
    collator = DataCollatorForLanguageModeling(tokenizer)
    for duplicate in range(10):
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        writer = None
        for start in range(0, len(rows), 64):
            batch = collator([rows[i] for i in range(start, min(start + 64, len(rows)))])
            columns = {
                key: pa.FixedSizeListArray.from_arrays(pa.array(value.numpy().ravel()), 512)
                for key, value in batch.items()
            }
            table = pa.RecordBatch.from_pydict(columns)
            if writer is None:
                writer = pa.ipc.new_file(
                    str(work / f"{duplicate}.arrow"), table.schema, options=options
                )
            writer.write_batch(table)
        if writer is not None:
            writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=70, help="text for our side")
    megabytes = parser.parse_args().megabytes
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        large = write_jsonl(work / "large.jsonl", megabytes * 1_000_000)
        ours, usual = measure(work, large)
        print(f"prepare: the usual path {usual:.2f} MB/s of JSONL per core")
        for compression, speed in ours.items():
            print(
                f"prepare: ours, {compression}: {speed:.1f} MB/s per core, "
                f"{speed / usual:.0f}x (goals: 75 MB/s, 100x)"
            )
        _formats_and_masks(work)
        _whole_command(work, large)


def measure(work: Path, large: int) -> tuple[dict[str, float], float]:
    """MB/s of JSONL per core: ours by compression, and the usual path.

    large: bytes of `large.jsonl` in work, where the vocabulary is left, too.
    """
    bench_vocabulary(work / "tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(work / "tokenizer")
    small = write_jsonl(work / "small.jsonl", PEER_BYTES)
    ours: dict[str, list[float]] = {"none": [], "zstd": []}
    theirs = []
    for number in range(ROUNDS):
        for compression, speeds in ours.items():
            speeds.append(large / 1e6 / _our_seconds(work, compression))
        peer = work / f"peer-{number}"
        peer.mkdir()
        started = time.process_time()
        usual_path(work / "small.jsonl", tokenizer, peer)
        theirs.append(small / 1e6 / (time.process_time() - started))
    speed = {compression: statistics.median(speeds) for compression, speeds in ours.items()}
    return speed, statistics.median(theirs)


def _formats_and_masks(work: Path) -> None:
    """CPU time of every format with every mask, relative to full sentences with token masks.

    One worker, whose encoder has cached the words: then formats and masks weigh most.
    """
    worker, seconds = _worker(work, "none"), dict[tuple[str, str], list[float]]()
    for _ in range(ROUNDS):
        for form, of_format in FORMATS.items():
            for masks, of_masks in MASKS.items():
                data = override(recipe("roberta_base"), of_format + of_masks).data
                worker.job = replace(worker.job, data=data)
                special, words = worker.vocabulary.special, worker.vocabulary.word_starts
                worker.masking = Masking.of(data, special, words)
                seconds.setdefault((form, masks), []).append(_seconds(work, worker))
    least = min(seconds["full sentences", "token"])
    for form in FORMATS:
        ratios = [f"{masks} {min(seconds[form, masks]) / least:.2f}" for masks in MASKS]
        print(f"prepare: {form}: {', '.join(ratios)} times as long (goal <= 2)")


def _our_seconds(work: Path, compression: str) -> float:
    """CPU seconds of a new worker for the large file, including writing files."""
    return _seconds(work, _worker(work, compression))


def _worker(work: Path, compression: str) -> Worker:
    job = PrepareJob(
        work / "parts",
        recipe("roberta_base").data,
        ("large",),
        {"large": 2**64 // 200},
        SPLIT_BYTES,
        compression,
        "fast",  # type: ignore[arg-type]
    )
    return Worker.create(job, read_vocabulary(work / "tokenizer"))


def _seconds(work: Path, worker: Worker) -> float:
    shutil.rmtree(work / "parts", ignore_errors=True)
    (work / "parts").mkdir()
    _, sources = corpus_sources(str(work / "large.jsonl"), [])
    started = time.process_time()
    for task in cut_tasks(sources):
        worker.do(task)
    return time.process_time() - started


def _whole_command(work: Path, size: int) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run(
        [
            sys.executable, "-m", "pipeline.prepare", "--corpus", str(work / "large.jsonl"),
            "--tokenizer", str(work / "tokenizer"), "--output", str(work / "out"),
        ],
        check=True,
    )  # fmt: skip
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"prepare: whole command, all cores: {size / 1e6 / wall:.1f} MB/s wall, {cpu:.1f} CPU s")


if __name__ == "__main__":
    main()

"""JSONL -> shards with ten masks: ours beside the usual datasets + collator path, in one run.

    python -m tests.benchmarks.bench_prepare [--megabytes 70]

The usual path: `datasets.map` with a transformers tokenizer, `group_texts` from run_mlm.py, ten
passes of DataCollatorForLanguageModeling, int64 columns as zstd Arrow files. One core each: CPU
seconds of one thread, start-up and compilation left out of both. The last figure is the whole
command, start-up included.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"

import functools
import operator

import datasets
import pyarrow as pa
import torch
from transformers import AutoTokenizer, DataCollatorForLanguageModeling, PreTrainedTokenizerBase

from pipeline.data.corpora import corpus_sources
from pipeline.data.splits import SPLIT_BYTES, Job, Worker, cut_tasks
from pipeline.data.vocabulary import read_vocabulary
from pipeline.recipes import recipe
from tests.benchmarks.text import write_jsonl
from tests.benchmarks.vocabulary import bench_vocabulary

ROUNDS = 3
PEER_BYTES = 1_500_000


def usual_path(path: Path, tokenizer: PreTrainedTokenizerBase, work: Path) -> None:
    """What most people run today, on one file."""
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
        vocabulary = bench_vocabulary(work / "tokenizer")
        tokenizer = AutoTokenizer.from_pretrained(work / "tokenizer")
        large = write_jsonl(work / "large.jsonl", megabytes * 1_000_000)
        small = write_jsonl(work / "small.jsonl", PEER_BYTES)
        ours: dict[str, list[float]] = {"none": [], "zstd": []}
        theirs = []
        for number in range(ROUNDS):
            for compression, speeds in ours.items():
                speeds.append(large / 1e6 / _our_seconds(work, vocabulary, compression))
            peer = work / f"peer-{number}"
            peer.mkdir()
            started = time.process_time()
            usual_path(work / "small.jsonl", tokenizer, peer)
            theirs.append(small / 1e6 / (time.process_time() - started))
        usual = statistics.median(theirs)
        print(f"prepare: the usual path {usual:.2f} MB/s of JSONL per core")
        for compression, speeds in ours.items():
            speed = statistics.median(speeds)
            print(
                f"prepare: ours, {compression}: {speed:.1f} MB/s per core, "
                f"{speed / usual:.0f}x (goals: 75 MB/s, 100x)"
            )
        _whole_command(work, large)


def _our_seconds(work: Path, vocabulary: object, compression: str) -> float:
    """CPU seconds of one worker over the large file, files written; a new worker each time."""
    output = work / "parts"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    _, sources = corpus_sources(str(work / "large.jsonl"), [])
    job = Job(
        output,
        recipe("roberta_base").data,
        ("large",),
        {"large": 2**64 // 200},
        SPLIT_BYTES,
        compression,
        "gigatoken",  # type: ignore[arg-type]
    )
    worker = Worker.create(job, read_vocabulary(work / "tokenizer"))
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

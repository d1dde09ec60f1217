"""JSONL -> shards with ten masks: ours and the common datasets + collator path, in one run.

    python -m tests.benchmarks.bench_prepare [--megabytes 70]

The common path: `datasets.map` with a transformers tokenizer, `group_texts` from run_mlm.py, ten
passes of DataCollatorForLanguageModeling, int64 columns as zstd Arrow files. One core each: CPU
seconds of one thread, without start-up and compilation.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"

import functools
import operator

import datasets
import pyarrow as pa
import torch
from transformers import AutoTokenizer, DataCollatorForLanguageModeling, PreTrainedTokenizerBase

from pipeline.config.settings import override
from pipeline.data.rows.masks import Masking
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.recipes import recipe
from tests.benchmarks.text import write_jsonl
from tests.benchmarks.timing import in_turn, median, parse
from tests.benchmarks.vocabulary import bench_vocabulary
from tests.benchmarks.workers import do_file, do_next, new_worker

ROUNDS = 3
DATA = recipe("roberta_base").data
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


def usual_path(path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """The common path, on one file."""

    def tokenize(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        return dict(tokenizer(batch["text"], return_special_tokens_mask=True))

    def group_texts(batch: dict[str, list[list[int]]]) -> dict[str, list[list[int]]]:
        joined = {key: functools.reduce(operator.iadd, values, []) for key, values in batch.items()}
        total = len(joined["input_ids"]) // 512 * 512
        return {k: [v[i : i + 512] for i in range(0, total, 512)] for k, v in joined.items()}

    collator = DataCollatorForLanguageModeling(tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        raw = datasets.Dataset.from_json(str(path), cache_dir=folder)
        tokens = raw.map(tokenize, batched=True, remove_columns=raw.column_names)
        rows = tokens.map(group_texts, batched=True)
        for duplicate in range(10):
            tables = (table_of(collator(examples)) for examples in batched(rows, 64))
            first = next(tables)
            with pa.ipc.new_file(
                f"{folder}/{duplicate}.arrow", first.schema,
                options=pa.ipc.IpcWriteOptions(compression="zstd"),
            ) as writer:  # fmt: skip
                for table in chain([first], tables):
                    writer.write_batch(table)


def batched(rows: datasets.Dataset, size: int) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, len(rows), size):
        yield [rows[i] for i in range(start, min(start + size, len(rows)))]


def table_of(batch: Mapping[str, torch.Tensor]) -> pa.RecordBatch:
    columns = {
        key: pa.FixedSizeListArray.from_arrays(pa.array(value.numpy().ravel()), 512)
        for key, value in batch.items()
    }
    return pa.RecordBatch.from_pydict(columns)


def main() -> None:
    megabytes = parse(__doc__, megabytes=70).megabytes
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        large = write_jsonl(work / "large.jsonl", megabytes * 1_000_000)
        speeds = measure(work, large)
        usual = speeds.pop("usual")
        print(f"prepare: the usual path {usual:.2f} MB/s of JSONL per core")
        for compression, speed in speeds.items():
            print(
                f"prepare: ours, {compression}: {speed:.1f} MB/s per core, "
                f"{speed / usual:.0f}x (goals: 75 MB/s, 100x)"
            )
        _formats_and_masks(work)


def measure(work: Path, large: int) -> dict[str, float]:
    """MB/s of JSONL per core: ours by compression, and of the `usual` path.

    large: bytes of `large.jsonl` in work, where the vocabulary is left, too.
    """
    vocabulary = bench_vocabulary(work / "tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(work / "tokenizer")
    small = write_jsonl(work / "small.jsonl", PEER_BYTES)
    works: dict[str, Callable[[], None]] = {}
    for name in ("none", "zstd"):
        places = (work / f"{name}-{number}" for number in range(ROUNDS + 1))
        workers = [new_worker(place, DATA, vocabulary, name) for place in places]  # type: ignore[arg-type]
        works[name] = partial(do_next, workers, work / "large.jsonl")
    works["usual"] = lambda: usual_path(work / "small.jsonl", tokenizer)
    found = in_turn(works, ROUNDS)
    sizes = {"none": large, "zstd": large, "usual": small}
    return {name: sizes[name] / 1e6 / median(found[name]).cpu for name in works}


def _formats_and_masks(work: Path) -> None:
    """CPU time of every format with every mask, relative to full sentences with token masks.

    One worker, whose encoder has cached the words: then formats and masks weigh most.
    """
    worker = new_worker(work / "parts", DATA, read_vocabulary(work / "tokenizer"))

    def do(settings: tuple[str, ...]) -> None:
        data = override(recipe("roberta_base"), settings).data
        worker.job = replace(worker.job, data=data)
        worker.masking = Masking.of(data, worker.vocabulary.special, worker.vocabulary.word_starts)
        shutil.rmtree(work / "parts")
        (work / "parts").mkdir()
        do_file(worker, work / "large.jsonl")

    for form, of_format in FORMATS.items():
        works = {masks: partial(do, of_format + of_masks) for masks, of_masks in MASKS.items()}
        found = in_turn({"least": partial(do, ())} | works, ROUNDS)
        least, *others = (min(part.cpu for part in each) for each in found.values())
        ratios = [f"{masks} {seconds / least:.2f}" for masks, seconds in zip(MASKS, others)]
        print(f"prepare: {form}: {', '.join(ratios)} times as long (goal <= 2)")


if __name__ == "__main__":
    main()

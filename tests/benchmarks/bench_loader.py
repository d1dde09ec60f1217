"""Batches of 64 x 512 with masks as int64 tensors: our loader and two common ones, in one run.

    python -m tests.benchmarks.bench_loader [--shards DIR]

- ours: shards with stored masks, mapped into memory, global order; drawn: the same masks, drawn as
  with data.mask_mode=per-epoch instead of stored.
- memmap: rows gathered from a np.memmap of uint16 ids, masked by transformers' torch code.
- collator: a shuffled `datasets` table through DataCollatorForLanguageModeling.

All read the same rows, warm, on one core; CPU seconds, interleaved, medians. Without --shards the
rows are random ids, which makes no difference: no loader's work depends on the ids.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"

import itertools

import datasets
import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer, models
from torch.utils.data import DataLoader
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

from pipeline.data.rows.masks import Masking
from pipeline.data.rows.sentence_rows import Rows
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import (
    MANIFEST,
    Manifest,
    MaskFile,
    Shard,
    mask_file,
    rows_file,
    shard_name,
)
from pipeline.data.shards.verify import masking_of
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.loading.dataset import Dataset
from pipeline.loading.loader import Loader
from pipeline.loading.order import Order, Share

ROWS, LENGTH, VOCABULARY, BATCH, STEP = 32_768, 512, 50_265, 64, 8192
SPECIAL = 5
ROUNDS = 9
BATCHES = {"ours": 512, "ours, drawn": 512, "ours, step of 64": 512, "memmap": 40, "collator": 6}
GOALS = {"memmap": 12, "collator": 150}
GOAL_DRAWN = 0.9
GOAL_SPEED = 250e6


def random_shards(directory: Path) -> None:
    """A prepared directory of ROWS full rows in two shards, with two mask duplicates."""
    rng = np.random.default_rng(0)
    count = ROWS // 2
    special = np.arange(VOCABULARY) < SPECIAL
    described = {"scheme": "token", "rate": 0.15, "split": [0.8, 0.1]}
    masking = Masking.described(described, special, special, 0)
    described = []
    for number in range(2):
        ids = rng.integers(SPECIAL, VOCABULARY, (count, LENGTH)).astype(np.uint16)
        ids[:, 0], ids[:, -1] = 0, 2
        offsets = np.arange(count + 1, dtype=np.int64) * LENGTH
        sequences = np.arange(number * count, (number + 1) * count, dtype=np.uint64)
        rows = Rows(
            ids=ids.ravel(),
            offsets=offsets,
            document_starts=np.zeros(count, np.uint16),
            document_offsets=np.arange(count + 1, dtype=np.int32),
            first_row=np.zeros(1, np.int64),
            last_row=np.zeros(1, np.int64),
            elsewhere=np.empty((0, 2), np.int64),
            second_segment=np.zeros(count, np.uint16),
            pair_label=np.full(count, -1, np.int8),
        )
        name = shard_name("train", number)
        content = arrow_files.encode_rows(rows, "x", ["x"], sequences, "none")
        for file in (rows_file(name), *(mask_file(name, number) for number in range(2))):
            (directory / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / rows_file(name)).write_bytes(content)
        masks = []
        drawn = list(masking.draw_duplicates(ids.ravel(), offsets, "x", sequences, range(2)))
        for duplicate, mask in enumerate(drawn):
            encoded = arrow_files.encode_masks(mask, "none")
            (directory / mask_file(name, duplicate)).write_bytes(encoded)
            masks.append(
                MaskFile(
                    file=mask_file(name, duplicate),
                    predictions=mask.predictions,
                    bytes=encoded.size,
                    xxh3_64="",
                )
            )
        described.append(
            Shard(
                file=rows_file(name),
                split="train",
                sequences=count,
                tokens=ids.size,
                bytes=content.size,
                xxh3_64="",
                masks=tuple(masks),
            )
        )
    names = ("bos", "pad", "eos", "unk", "mask")
    special = {name: number for number, name in enumerate(names)}
    manifest = Manifest(
        fingerprint="",
        data={},
        masking=masking.describe(),
        sequence_length=LENGTH,
        max_predictions=77,
        duplicates=2,
        seed=0,
        compression="none",
        engine={"recipe": "none", "ids": "none", "mismatches": []},
        tokenizer={"sha256": "", "kind": "byte-bpe", "size": VOCABULARY, **special},
        corpora={},
        totals={
            "documents": 0,
            "sequences": sum(shard.sequences for shard in described),
            "tokens": sum(shard.tokens for shard in described),
        },
        files={
            name: {"bytes": 0, "xxh3_64": ""} for name in ("documents.parquet", "inputs.parquet")
        },
        shards=tuple(described),
    )
    (directory / MANIFEST).write_bytes(manifest.to_json())


def with_drawn_masks(dataset: Dataset) -> Dataset:
    """The same rows; their masks are drawn instead of read."""
    manifest = dataset.manifest
    if (dataset.directory / "tokenizer").is_dir():
        vocabulary = read_vocabulary(dataset.directory / "tokenizer")
        masking = masking_of(dataset.directory, manifest, vocabulary)
    else:
        special = np.arange(VOCABULARY) < SPECIAL
        masking = Masking.described(manifest.masking, special, special, manifest.seed)
    return Dataset(dataset.directory, manifest, dataset.shards, masking)


def padded_rows(dataset: Dataset) -> npt.NDArray[np.uint16]:
    """The first rows of a dataset as the other loaders store them [n, LENGTH]."""
    out = np.full((min(ROWS, int(dataset.piece_rows.sum())), LENGTH), 1, np.uint16)
    row = 0
    for shard in dataset.shards:
        ids, offsets = arrow_files.ragged(
            arrow_files.read_table(dataset.directory / shard.file)["input_ids"]
        )
        for start, stop in itertools.pairwise(offsets):
            if row == len(out):
                return out
            out[row, : stop - start] = ids[start:stop]
            row += 1
    return out


def ours(dataset: Dataset, step: int) -> Iterator[int]:
    """Tokens of each batch of our loader, `step` sequences per optimizer step."""
    order = Order(kind="global", seed=0, piece_rows=(dataset.piece_rows,))
    loader = Loader([dataset], order, Share(sequences=step, per_device=BATCH))
    for batch in loader.micro_batches():
        yield batch.input_ids.numel()


def tokens_and_seconds(directory: Path) -> tuple[int, float]:
    """Tokens of batches after the first hundred, and the CPU seconds that they took: five."""
    torch.set_num_threads(1)
    batches = ours(Dataset.open(directory), STEP)
    for _ in range(100):
        next(batches)
    began_at, tokens = time.process_time(), 0
    while time.process_time() - began_at < 5:
        tokens += next(batches)
    return tokens, time.process_time() - began_at


def memmap(path: Path, collator: DataCollatorForLanguageModeling) -> Iterator[int]:
    """Rows gathered in random order, masked with transformers' own torch code."""
    rows = np.memmap(path, np.uint16, "r").reshape(-1, LENGTH)
    rng = np.random.default_rng(0)
    while True:
        chosen = rng.permutation(len(rows))
        for start in range(0, len(chosen) - BATCH + 1, BATCH):
            inputs = torch.from_numpy(rows[chosen[start : start + BATCH]].astype(np.int64))
            collator.torch_mask_tokens(inputs, special_tokens_mask=inputs < SPECIAL)
            yield inputs.numel()


def collated(
    rows: npt.NDArray[np.uint16], collator: DataCollatorForLanguageModeling
) -> Iterator[int]:
    """A shuffled table with the columns of a tokenizer call, through DataLoader."""
    ids = rows[:8192].astype(np.int64)
    columns = {
        "input_ids": ids,
        "attention_mask": (ids != 1).astype(np.int8),
        "special_tokens_mask": (ids < SPECIAL).astype(np.int8),
    }
    table = datasets.Dataset.from_dict(columns).shuffle(seed=0)
    while True:
        for batch in DataLoader(table, batch_size=BATCH, collate_fn=collator, drop_last=True):
            yield batch["input_ids"].numel()


def tokenizer_of_size(size: int) -> PreTrainedTokenizerFast:
    """A vocabulary for the collator, which needs only its size and special ids."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    words = {token: number for number, token in enumerate(special)}
    words |= {f"w{number}": number for number in range(SPECIAL, size)}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<unk>")),
        bos_token="<s>",
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        mask_token="<mask>",
    )


def measure(loaders: dict[str, Iterator[int]]) -> dict[str, float]:
    """Median tokens per CPU second of each loader, interleaved."""
    speeds: dict[str, list[float]] = {name: [] for name in loaders}
    for number in range(ROUNDS + 1):
        for name, batches in loaders.items():
            started = time.process_time()
            tokens = sum(next(batches) for _ in range(BATCHES[name]))
            if number > 0:  # the first round maps files, compiles and warms up
                speeds[name].append(tokens / (time.process_time() - started))
    return {name: statistics.median(found) for name, found in speeds.items()}


def run(directory: Path, work: Path) -> dict[str, float]:
    """Measure on a prepared directory; prints as it goes."""
    dataset = Dataset.open(directory)
    rows = padded_rows(dataset)
    rows.tofile(work / "rows.bin")
    collator = DataCollatorForLanguageModeling(tokenizer_of_size(VOCABULARY))
    speeds = measure(
        {
            "ours": ours(dataset, STEP),
            "ours, drawn": ours(with_drawn_masks(dataset), STEP),
            "ours, step of 64": ours(dataset, BATCH),
            "memmap": memmap(work / "rows.bin", collator),
            "collator": collated(rows, collator),
        }
    )
    speed, goal = speeds["ours"] / 1e6, f"(goal >= {GOAL_SPEED / 1e6:.0f})"
    print(f"loader: ours {speed:.0f} M tokens/s per core {goal}")
    drawn = speeds["ours, drawn"] / speeds["ours"]
    print(f"loader: masks drawn instead of read: {drawn:.2f}x the speed (goal >= {GOAL_DRAWN})")
    for name in list(speeds)[1:]:
        ratio = speeds["ours"] / speeds[name]
        goal = f" (goal >= {GOALS[name]})" if name in GOALS else ""
        print(f"loader: {name} {speeds[name] / 1e6:.1f} M tokens/s, ours is {ratio:.1f}x{goal}")
    return speeds


def main(argv: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--shards", type=Path, help="a prepared directory at 512; default: random rows"
    )
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        if options.shards is None:
            random_shards(work)
        return on_one_core(lambda: run(options.shards or work, work))


def on_one_core(measured: Callable[[], dict[str, float] | None]) -> dict[str, float]:
    """Run with this process pinned to one core, if the system supports it."""
    if not hasattr(os, "sched_setaffinity"):
        return measured() or {}
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        return measured() or {}
    finally:
        os.sched_setaffinity(0, allowed)


if __name__ == "__main__":
    main()

"""Batches of 64 x 512 with masks as int64 tensors: our loader and two common ones, in one run.

    python -m tests.benchmarks.bench_loader

- ours: shards with stored masks, mapped into memory, global order; drawn: the same masks, drawn as
  with data.mask_mode=per-epoch instead of stored.
- memmap: rows gathered from a np.memmap of uint16 ids, masked by transformers' torch code.
- collator: a shuffled `datasets` table through DataCollatorForLanguageModeling.

All read the same rows, warm, on one core, in turn; CPU seconds, medians. The rows are full and of
random ids, which makes no difference: no loader's work depends on the ids.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"

import datasets
import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer, models
from torch.utils.data import DataLoader
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

from pipeline.data.shards import arrow_files
from pipeline.loading.dataset import Dataset
from pipeline.loading.loader import Loader
from pipeline.loading.order import Order, Share
from tests.benchmarks.timing import in_turn, median
from tests.pipeline.loading.conftest import drawing, prepare_directory

ROWS, LENGTH, VOCABULARY, BATCH, STEP = 32_768, 512, 50_265, 64, 8192
SPECIAL = 5
ROUNDS = 9
BATCHES = {"ours": 512, "ours, drawn": 512, "memmap": 40, "collator": 6}
GOALS = {"ours, drawn": 1 / 0.9, "memmap": 12, "collator": 150}
"""Our speed relative to each."""
GOAL_SPEED = 250e6


def random_shards(directory: Path) -> Dataset:
    """A new directory of ROWS full rows in two shards, with two mask duplicates."""
    prepare_directory(
        directory, (ROWS // 2, ROWS // 2), duplicates=2, vocabulary=VOCABULARY,
        length=LENGTH, shortest=LENGTH,
    )  # fmt: skip
    return Dataset.open(directory)


def rows_of(dataset: Dataset) -> npt.NDArray[np.uint16]:
    """The rows as the other loaders store them [ROWS, LENGTH]."""
    tables = (arrow_files.read_table(dataset.directory / shard.file) for shard in dataset.shards)
    ids = [arrow_files.ragged(table["input_ids"])[0] for table in tables]
    return np.concatenate(ids).reshape(ROWS, LENGTH)


def ours(dataset: Dataset) -> Iterator[int]:
    """Tokens of each batch of our loader, STEP sequences per optimizer step."""
    order = Order(kind="global", seed=0, piece_rows=(dataset.piece_rows,))
    loader = Loader([dataset], order, Share(sequences=STEP, per_device=BATCH))
    for batch in loader.micro_batches():
        yield batch.input_ids.numel()


def tokens_and_seconds(directory: Path) -> tuple[int, float]:
    """Tokens of batches after the first hundred, and the CPU seconds that they took: five."""
    torch.set_num_threads(1)
    batches = ours(Dataset.open(directory))
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
        for chosen in rng.permutation(len(rows)).reshape(-1, BATCH):
            inputs = torch.from_numpy(rows[chosen].astype(np.int64))
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
    special = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
    words = [*special.values(), *(f"w{number}" for number in range(SPECIAL, size))]
    ids = {word: number for number, word in enumerate(words)}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(ids, unk_token="<unk>")),
        **{f"{name}_token": word for name, word in special.items()},
    )


def measure(work: Path) -> dict[str, float]:
    """Tokens per CPU second of each loader; prints them, and how much faster ours is."""
    dataset = random_shards(work / "shards")
    rows = rows_of(dataset)
    rows.tofile(work / "rows.bin")
    collator = DataCollatorForLanguageModeling(tokenizer_of_size(VOCABULARY))
    loaders = {
        "ours": ours(dataset),
        "ours, drawn": ours(drawing(dataset.directory)),
        "memmap": memmap(work / "rows.bin", collator),
        "collator": collated(rows, collator),
    }

    def take(name: str) -> None:
        assert sum(islice(loaders[name], BATCHES[name])) == BATCHES[name] * BATCH * LENGTH

    found = in_turn({name: partial(take, name) for name in loaders}, ROUNDS)
    speeds = {name: BATCHES[name] * BATCH * LENGTH / median(found[name]).cpu for name in loaders}
    speed = speeds["ours"]
    print(f"loader: ours {speed / 1e6:.0f} M tokens/s per core (goal >= {GOAL_SPEED / 1e6:.0f})")
    for name in list(speeds)[1:]:
        goal = f" (goal {GOALS[name]:.3g})" if name in GOALS else ""
        print(
            f"loader: {name} {speeds[name] / 1e6:.1f} M tokens/s, ours is "
            f"{speed / speeds[name]:.2f}x{goal}"
        )
    return speeds


def main() -> dict[str, float]:
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        return on_one_core(lambda: measure(Path(folder)))


def on_one_core(measured: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Run with this process pinned to one core, if the system supports it."""
    if not hasattr(os, "sched_setaffinity"):
        return measured()
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        return measured()
    finally:
        os.sched_setaffinity(0, allowed)


if __name__ == "__main__":
    main()

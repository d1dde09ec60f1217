"""Ten masks: speed per core of each scheme and of transformers' collator; bytes per token on disk.

    python -m tests.benchmarks.bench_masking

CPU seconds of one thread; all take turns and the medians are compared. Ids are random, with word
starts as frequent as in English: every 1.35 tokens.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import AutoTokenizer, DataCollatorForLanguageModeling

from pipeline.data.rows.masks import Masking, Masks
from pipeline.data.rows.sentence_rows import Rows
from pipeline.data.shards.arrow_files import encode_masks, encode_rows
from tests.benchmarks.timing import in_turn, median
from tests.benchmarks.vocabulary import bench_vocabulary
from tests.pipeline.data.small_shards import random_rows

ROWS, LENGTH, ROUNDS, FEW = 8192, 512, 7, 64
TOKENS_A_WORD = 1.35
SCHEMES = ("electra", "whole_word", "ngram", "span", "token")
GOAL_SCHEME = 2
"""Most time that a scheme may take, relative to token masks."""
LENGTHS = {"ngram": [6 / 11, 3 / 11, 2 / 11], "span": [0.8**more / 4.463 for more in range(10)]}


def measure(schemes: Sequence[str]) -> tuple[dict[str, float], Rows, list[Masks]]:
    """Masks x tokens per second and core by scheme, and of their `collator`.

    Also the rows, and the ten masks that the last scheme has drawn for them.
    """
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = bench_vocabulary(Path(folder))
        collator = DataCollatorForLanguageModeling(AutoTokenizer.from_pretrained(folder))
    special, word_starts = vocabulary.special, vocabulary.word_starts
    rng = np.random.default_rng(0)
    begins = rng.random((ROWS, LENGTH)) < 1 / TOKENS_A_WORD
    first, inner = (rng.choice(np.flatnonzero(kind & ~special), (ROWS, LENGTH))
                    for kind in (word_starts, ~word_starts))  # fmt: skip
    ids = np.where(begins, first, inner).astype(np.uint16)
    ids[:, 0], ids[:, -1] = 0, 2
    rows = replace(random_rows([LENGTH] * ROWS), ids=ids.ravel())
    sequences, drawn = np.arange(ROWS, dtype=np.uint64), list[Masks]()

    def draw(scheme: str) -> None:
        described = {"scheme": scheme, "rate": 0.15, "split": [0.8, 0.1]}
        described["lengths"] = LENGTHS.get(scheme, [])
        masking = Masking.described(described, special, word_starts, 0)
        drawn[:] = masking.draw_duplicates(rows.ids, rows.offsets, "x", sequences, range(10))

    few = [{"input_ids": row.tolist()} for row in ids[:FEW]]
    works = {"collator": partial(collator, few)} | {name: partial(draw, name) for name in schemes}
    found = in_turn(works, ROUNDS)
    sizes = {"collator": FEW * LENGTH} | dict.fromkeys(schemes, 10 * rows.ids.size)
    return {name: sizes[name] / median(found[name]).cpu for name in works}, rows, drawn


def main() -> None:
    speeds, rows, drawn = measure(SCHEMES)
    speed, peer = speeds.pop("token"), speeds.pop("collator")
    print(f"masks: ours {speed / 1e9:.2f} G token x duplicates/s per core (goal >= 1.0)")
    print(f"masks: transformers' collator {peer / 1e6:.2f} M, ratio {speed / peer:,.0f}x")
    for scheme, slower in speeds.items():
        print(
            f"masks: {scheme} {slower / 1e9:.2f} G, {speed / slower:.2f} times as long as token "
            f"(goal <= {GOAL_SCHEME})"
        )
    sequences = np.arange(ROWS, dtype=np.uint64)
    for compression, goal in (("none", 2.2), ("zstd", 1.45)):
        base = len(encode_rows(rows, "x", ["x"], sequences, compression))  # type: ignore[arg-type]
        masks = sum(len(encode_masks(mask, compression)) for mask in drawn)  # type: ignore[arg-type]
        of_masks, of_rows = masks / rows.ids.size, base / rows.ids.size
        print(
            f"bytes per token at {LENGTH}, {compression}: ten masks {of_masks:.3f} "
            f"(goal <= {goal}), rows {of_rows:.3f} (random ids: no text to compress)"
        )


if __name__ == "__main__":
    main()

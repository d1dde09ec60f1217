"""Ten masks: speed per core of each scheme and of transformers' collator; bytes per token on disk.

    python tests/benchmarks/bench_masking.py

CPU seconds of one thread; all are interleaved and the medians compared. Ids are random, with word
starts as frequent as in English: every 1.35 tokens.
"""

import statistics
import time
from collections.abc import Sequence

import numpy as np
import torch
from transformers import DataCollatorForLanguageModeling

from pipeline.data.rows.masks import Masking, Masks
from pipeline.data.rows.sentence_rows import Rows
from pipeline.data.shards.arrow_files import encode_masks, encode_rows
from tests.benchmarks.vocabulary import gpt2_sized

ROWS, LENGTH, ROUNDS = 8192, 512, 7
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
    tokenizer, special, word_starts = gpt2_sized()
    rng = np.random.default_rng(0)
    begins = rng.random((ROWS, LENGTH)) < 1 / TOKENS_A_WORD
    first, inner = (rng.choice(np.flatnonzero(kind & ~special), (ROWS, LENGTH))
                    for kind in (word_starts, ~word_starts))  # fmt: skip
    ids = np.where(begins, first, inner).astype(np.uint16)
    ids[:, 0], ids[:, -1] = 0, 2
    offsets = np.arange(ROWS + 1, dtype=np.int64) * LENGTH
    sequences = np.arange(ROWS, dtype=np.uint64)
    collator = DataCollatorForLanguageModeling(tokenizer)
    few = [{"input_ids": row.tolist()} for row in ids[:64]]
    speeds: dict[str, list[float]] = {}
    drawn = []
    for number in range(ROUNDS + 1):
        for scheme in schemes:
            described = {"scheme": scheme, "rate": 0.15, "split": [0.8, 0.1]}
            described["lengths"] = LENGTHS.get(scheme, [])
            masking = Masking.described(described, special, word_starts, 0)
            started = time.process_time()
            drawn = list(masking.draw_duplicates(ids.ravel(), offsets, "x", sequences, range(10)))
            if number > 0:  # the first round compiles
                speed = ids.size * 10 / (time.process_time() - started)
                speeds.setdefault(scheme, []).append(speed)
        started = time.process_time()
        collator(few)
        speeds.setdefault("collator", []).append(64 * LENGTH / (time.process_time() - started))
    rows = Rows(
        ids.ravel(),
        offsets,
        np.zeros(ROWS, np.uint16),
        np.arange(ROWS + 1, dtype=np.int32),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        np.empty((0, 2), np.int64),
        np.zeros(ROWS, np.uint16),
        np.full(ROWS, -1, np.int8),
    )
    return {name: statistics.median(found) for name, found in speeds.items()}, rows, drawn


def main() -> None:
    median, rows, drawn = measure(SCHEMES)
    speed, peer = median.pop("token"), median.pop("collator")
    print(f"masks: ours {speed / 1e9:.2f} G token x duplicates/s per core (goal >= 1.0)")
    print(f"masks: transformers' collator {peer / 1e6:.2f} M, ratio {speed / peer:,.0f}x")
    for scheme, slower in median.items():
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

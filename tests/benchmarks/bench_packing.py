"""Training on short rows with `batch.packing=rows` and with one row per line: same rows and masks.

    python -m tests.benchmarks.bench_packing [--threads N]

The sample corpus at 512 in each format: some rows forward and backward through our model, as the
loader yields them with and without packing. RoBERTa-base's sizes with two layers, so that a round
takes seconds; dropout 0.1, so that both sides run the same attention code. Interleaved, medians of
ratios, by the clock and by CPU seconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from model.objectives.masked_language import MaskedLanguageModel
from pipeline.loading.dataset import Dataset
from pipeline.loading.loader import Loader
from pipeline.loading.micro_batch import MicroBatch
from pipeline.loading.order import Order, Share
from pipeline.training.forward.model_inputs import model_inputs
from pipeline.training.planning.plan import encoder_config
from tests.benchmarks.bench_training import Seconds, base_run, parse_threads, ratios, rounds

FORMATS = {
    "sentence_pair": ["data.segments.label=next"],
    "doc_sentences": [],
}
ROWS, LINES, ROUNDS = 32, 4, 5
CPU = torch.device("cpu")


def prepared(name: str, root: Path) -> Dataset:
    """The sample in a format, with one mask; root: of tokenizers, which formats share."""
    settings = ["data.mask_mode=static", "data.duplicates=1", f"data.format={name}", *FORMATS[name]]
    chosen = [word for setting in settings for word in ("--set", setting)]
    subprocess.run(
        [sys.executable, "-m", "pipeline.prepare", "--corpus", "sample", *chosen,
         "--output", root / name],
        env=os.environ | {"TENFOLD_ROOT": str(root)}, check=True, capture_output=True,
    )  # fmt: skip
    return Dataset.open(root / name)


def batches(dataset: Dataset, packing: Literal["none", "rows"]) -> list[MicroBatch]:
    """The micro-batches of the first step."""
    order = Order(kind="global", seed=0, shard_rows=(dataset.shard_rows,))
    share = Share(sequences=ROWS, per_device=LINES)
    source = Loader([dataset], order, share, packing=packing)
    found = list(next(source.steps()).batches)
    source.close()
    return found


def bench(name: str, dataset: Dataset) -> None:
    """Measure tokens per second of both sides."""
    run = base_run()
    small = replace(run, encoder=replace(run.encoder, layers=2))
    model = MaskedLanguageModel(encoder_config(small), seed=0).train()
    mask_id = dataset.manifest.tokenizer["mask"]
    sides = [batches(dataset, packing) for packing in ("none", "rows")]

    def step(side: list[MicroBatch]) -> None:
        for batch in side:
            model(model_inputs(batch, CPU, mask_id))["mlm_loss"].backward()

    found = []
    for counts in rounds(ROUNDS):
        pair = Seconds.of(lambda: step(sides[0])), Seconds.of(lambda: step(sides[1]))
        if counts:
            found.append(pair)
    tokens = sum(batch.tokens for batch in sides[0])
    speeds = [tokens / statistics.median(pair[side].wall for pair in found) for side in (0, 1)]
    wall, cpu = ratios(found)
    lines = sum(int((batch.lengths > 2).sum()) for batch in sides[1])
    print(
        f"packing: {name}, {ROWS} rows of {tokens / ROWS:.0f} tokens in {lines} lines of "
        f"{dataset.manifest.sequence_length}: {speeds[1]:,.0f} tokens/s, a row a line "
        f"{speeds[0]:,.0f}, ratio {wall:.2f} by the clock, {cpu:.2f} by CPU seconds, "
        f"{torch.get_num_threads()} threads, {len(found)} rounds",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse_threads(parser)
    with tempfile.TemporaryDirectory() as folder:
        for name in FORMATS:
            bench(name, prepared(name, Path(folder)))


if __name__ == "__main__":
    main()

"""Prints one training sequence as text, so that the user can check it before a long run."""

from __future__ import annotations

import sys

from tokenizers import Tokenizer

from pipeline.base.errors import DataError
from pipeline.loading.loader import Loader
from pipeline.loading.micro_batch import MicroBatch


def print_example(loader: Loader, sequences: int, step: int) -> None:
    """Print one sequence of the next step as the encoder sees it; sequences: read so far."""
    try:
        batch = next(loader.micro_batches(sequences, step))
    except DataError as error:  # the training loop gets the same error and handles it
        print(f"  example: none, {error}")
        return
    tokenizer = Tokenizer.from_file(
        str(loader.datasets[0].directory / "tokenizer" / "tokenizer.json")
    )
    print(f"  example: {describe_example(batch, tokenizer)}")
    if step:
        print(f"resuming after step {step:,}")
    sys.stdout.flush()


def describe_example(batch: MicroBatch, tokenizer: Tokenizer, tokens: int = 48) -> str:
    """A line for the batch's first row; a predicted token is {what the encoder sees | the
    answer}."""
    shown = batch.input_ids[batch.rows[0]][:tokens].tolist()
    used = zip(batch.positions.tolist()[: batch.predictions], batch.labels.tolist(), strict=False)
    answers = {place: label for place, label in used if place < len(shown)}

    def text(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=False))

    parts: list[str] = []
    start = 0
    for place, label in sorted(answers.items()):
        parts += [text(shown[start:place]), f" {{{text([shown[place]])} | {text([label])}}}"]
        start = place + 1
    parts.append(text(shown[start:]))
    return " ".join("".join(parts).split())

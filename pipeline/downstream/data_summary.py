"""The examples of a task -> lines for the terminal before training, and entries of scores.json."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.data.selection.minhash import word_hashes
from pipeline.data.text.cleaning import clean
from pipeline.downstream.features import RowEncoder
from pipeline.downstream.finetune_tasks import LabelledTask, TaskData, is_published
from pipeline.downstream.reading.division import DIVISION_SEED
from pipeline.downstream.reading.examples import Example
from pipeline.downstream.reading.labels import describe_labels


@dataclass(frozen=True, slots=True)
class Copies:
    """Examples of a development set that are also training examples."""

    name: str
    checked: int
    in_train: int

    def describe(self) -> str:
        """A line for the terminal, a warning if they are many; empty if there are none."""
        if not self.in_train:
            return ""
        share = self.in_train / self.checked
        found = (
            f"{self.in_train:,} of {self.checked:,} {self.name} examples ({share:.1%}) have the "
            "texts of a training example"
        )
        if share <= 0.01:
            return found
        return f"warning: {found}, so their scores are too high; drop them from one of the files"


def find_copies(data: TaskData) -> list[Copies]:
    """Copies per development set, see `count_shared_examples`."""
    sets = {"development": data.dev} | {split.path.stem: split for split in data.more_dev}
    return [
        Copies(name, len(s.examples), count_shared_examples(s.examples, data.train.examples))
        for name, s in sets.items()
    ]


def describe_data(task: LabelledTask, data: TaskData, copies: list[Copies]) -> Iterator[str]:
    """Lines that a user should see before hours of training."""
    if data.train.taken:
        yield f"{data.train.path}: {data.train.taken}"
    for split in data.splits():
        if split.unlabelled:
            yield f"{split.path}: {split.unlabelled:,} rows without a label are dropped"
    if data.is_divided:
        yield (
            f"development: {len(data.dev.examples):,} examples of {data.dev.path}, drawn with seed "
            f"{DIVISION_SEED} for every seed of the job"
        )
    if data.labels and not is_published(task):
        for side, split in (("training", data.train), ("development", data.dev)):
            yield f"{side} labels: {describe_labels(split.examples, data.labels)}"
    yield from filter(None, (found.describe() for found in copies))


def about_data(data: TaskData, encoder: RowEncoder, copies: list[Copies]) -> dict[str, Any]:
    """Numbers of examples, and what was left out or is in both sets, for scores.json."""
    return {
        "train": len(data.train.examples),
        "dev": len(data.dev.examples),
        "skipped_lines": data.train.skipped_lines + data.dev.skipped_lines,
        "unlabelled": sum(split.unlabelled for split in data.splits()),
        "copies": [asdict(found) for found in copies],
        "length": encoder.length,
        "lost": encoder.lost.describe(),
    }


def count_shared_examples(examples: Sequence[Example], training: Sequence[Example]) -> int:
    """Number of examples with the texts of a training example, in order, whatever the label.

    Texts are compared as `--dedup exact` compares documents: the same words in the same order,
    whatever their case, punctuation and white space.
    """
    # each text once: MNLI has three hypotheses per premise, SQuAD several questions per paragraph
    texts = sorted({text for part in (examples, training) for e in part for text in e.texts})
    cleaned = clean(texts)
    keys = dict(zip(texts, word_hashes(cleaned.buffer, cleaned.offsets)[:, 0].tolist()))

    def key_of(example: Example) -> tuple[int, ...]:
        return tuple(keys[text] for text in example.texts)

    known = set(map(key_of, training))
    return sum(key_of(example) in known for example in examples)

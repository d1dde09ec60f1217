"""Scores of every kind of labelled task, and the means of an ablation: small sets, fixed seeds.

The labels are learned in part, so that a score is neither that of a guess nor 1. Training has 12 to
15 steps in fp32, and predictions are recorded beside the scores, which are coarse; TOLERANCE holds
for both. An ablation is compared in means, differences and p.
"""

import csv
import json
import random
from functools import partial
from pathlib import Path
from typing import Any

from tests.end_to_end.texts import ADJECTIVES, NOUNS, VERBS, news
from tests.golden import recording
from tests.golden.compare import Case
from tests.golden.recording import EXPORTS, TOKENIZERS, command
from tests.launching import process

TOLERANCE = 1e-3
"""Of scores and predictions after training: the processor decides the last bits of each step."""
ROWS = 64
TASKS: dict[str, tuple[str, tuple[str, ...]]] = {
    "sentence": ("classification", ("--text", "text", "--target", "label")),
    "pair": ("classification", ("--text", "text", "second", "--target", "same")),
    "regression": ("regression", ("--text", "text", "--target", "number")),
    "tokens": ("tags", ("--text", "text", "--target", "tags")),
    "questions": ("spans", ("--text", "question", "text", "--target", "answer")),
}
"""Kind of task and columns, by name."""


def labelled() -> list[dict[str, Any]]:
    """Rows with a label of each kind; one in eight labels of a class is wrong."""
    rng = random.Random(7)
    rows = []
    for n in range(ROWS):
        one, two, three = rng.sample(NOUNS, 3)
        adjective, verb = rng.choice(ADJECTIVES), rng.choice(VERBS)
        wrong = n % 8 == 7
        words = ["The", adjective, one, verb, "the", two]
        tags = ["O", "O", "B-A", "O", "O", "B-B" if two < "h" else "O"]
        same = n % 2 == 0
        rows.append({
            "text": " ".join(words),
            "label": ("no", "yes")[(adjective < "h") != wrong],
            "second": f"It is the {one if same else three}.",
            "same": ("no", "yes")[same != wrong],
            "number": NOUNS.index(one) / 4 + rng.random(),
            "tags": " ".join(tags),
            "question": f"What is {adjective}?",
            "answer": one,
        })  # fmt: skip
    return rows


def fine_tuned(name: str, work: Path) -> Any:
    """Scores of two seeds, of a bag of words, and the first predictions."""
    kind, columns = TASKS[name]
    rows = labelled()
    with (work / "rows.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    command(
        "finetune", EXPORTS / "bert", "--task", kind, "--train", work / "rows.csv", *columns,
        "--dev-share", 0.25, "--seeds", 2, "--epochs", 20, "--rows", 16, "--learning-rate", 0.01,
        "--baselines", "majority", "--output", work / "out",
    )  # fmt: skip
    content = json.loads((work / "out" / "scores.json").read_bytes())
    predictions = (work / "out" / "predictions.jsonl").read_text().splitlines()
    return {
        "scores": content["scores"],
        "baselines": content["baselines"],
        "predictions": [json.loads(line) for line in predictions[:6]],
    }


ARMS = ("--arm", "usual", "--arm", "low", "--set", "optimizer.peak_lr=0.002")
OF_ALL = {"data.vocab_size": recording.VOCAB_SIZE, "data.duplicates": 2} | recording.SETTINGS


def ablated(work: Path) -> Any:
    """Means, differences and p of two arms with two seeds, of ten steps each."""
    (work / "news.jsonl").write_bytes(news(200))
    changes = [word for name in OF_ALL for word in ("--set", f"{name}={OF_ALL[name]}")]
    command(
        "ablate", "--recipe", "roberta_tiny", *changes, *ARMS, "--corpus", "news",
        "--input", work / "news.jsonl", "--tokenizer", TOKENIZERS / "byte-bpe", "--seeds", 2,
        "--train-steps", 10, "--output", work / "out",
        TENFOLD_TEST_PYTHON=str(process.quick_python()),
    )  # fmt: skip
    found = json.loads((work / "out" / "ablation.json").read_bytes())
    return {"noise": found["noise"], "target_loss": found["target_loss"]} | {
        arm["name"]: {"measures": arm["measures"], "differences": arm["differences"]}
        for arm in found["arms"]
    }


CASES = [
    *(Case(f"scores/{name}", partial(fine_tuned, name), tolerance=TOLERANCE) for name in TASKS),
    Case("ablation", ablated, slow=True, tolerance=TOLERANCE),
]  # fmt: skip

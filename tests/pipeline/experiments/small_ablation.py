"""A small ablation that several tests read: two arms of a toy size, two seeds, on its own text."""

import json
from pathlib import Path
from typing import Any

from pipeline.experiments.ablation import Ablation, AblationJob
from pipeline.experiments.fine_tuning import score_file
from pipeline.experiments.measures import RESULT
from tests.launching.process import quick_python
from tests.pipeline.preparing import write_jsonl

SETTINGS = (
    "encoder.layers=1", "encoder.width=32", "encoder.feed_forward=64",
    "encoder.dropout=0.1", "encoder.attention_dropout=0.1",
    "batch.sequences=16", "batch.per_device=16", "checkpoint.every=4", "logging.every=1",
)  # fmt: skip
STEPS = 8
TIMES = ("seconds", "wall_seconds", "memory_gb")
"""What differs between two machines, and between two runs of one."""


def write_corpus(path: Path, texts: list[str], documents: int = 150) -> Path:
    """Pieces of the sample as documents of 2,000 characters."""
    pieces = [text[i : i + 2000] for text in texts for i in range(0, len(text), 2000)]
    return write_jsonl(path, pieces[:documents])


def words(corpus: Path, tokenizer: Path, output: Path, *more: object) -> list[str]:
    """Arguments of pipeline.ablate."""
    common = [word for setting in SETTINGS for word in ("--set", setting)]
    found = (
        "--recipe", "roberta_tiny", *common, "--arm", "low", "--arm", "high",
        "--set", "optimizer.peak_lr=0.02", "--corpus", "mine", "--input", corpus,
        "--tokenizer", tokenizer, "--seeds", 2, "--train-steps", STEPS, "--output", output, *more,
    )  # fmt: skip
    return [*map(str, found)]


def environment() -> dict[str, str]:
    """Children of the command are forked, each with one thread."""
    return {"TENFOLD_TEST_PYTHON": str(quick_python()), "OMP_NUM_THREADS": "1"}


def finished_result(job: AblationJob, loss: float, **changes: Any) -> dict[str, Any]:
    """The result.json of a run that has this loss at [MASK]."""
    curve = [[step, loss + 20 / step] for step in (10, 20, 30, 40, 50)]
    return {
        "arm": job.arm.name, "seed": job.seed, "peak_lr": 0.1, "steps": 50, "tokens": 1000,
        "sequences": 100, "flops": 1e9, "seconds": 2.0, "memory_gb": 1.0, "parameters": 99,
        "measures": {"mask_loss": loss}, "missing": {}, "own_mask_loss": loss, "curve": curve,
    } | changes  # fmt: skip


def save_result(given: Ablation, job: AblationJob, result: Any) -> None:
    """Write the result.json of a run."""
    given.directory(job).mkdir(parents=True, exist_ok=True)
    (given.directory(job) / RESULT).write_text(json.dumps(result))


def save_score(
    given: Ablation, job: AblationJob, score: float | None = 0.5, seconds: float = 1.0
) -> None:
    """Write the score of a run that was fine-tuned on mrpc."""
    path = score_file(given, job, "mrpc")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"score": score, "seconds": seconds, "examples": {}}))


def without_times(value: Any) -> Any:
    """ablation.json without what a clock said."""
    if isinstance(value, dict):
        return {name: without_times(part) for name, part in value.items() if name not in TIMES}
    if isinstance(value, list):
        return [without_times(part) for part in value]
    return value

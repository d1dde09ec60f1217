"""Run directories with files as training writes them, for tests of reports."""

import json
import math
from pathlib import Path
from typing import Any

from pipeline.config.settings import to_dict
from pipeline.recipes import recipe

START = "2026-01-01T00:00:00Z"


def write_run(run: Path, steps: int = 100, data: Path | None = None, **settings: Any) -> Path:
    """A finished run of roberta_tiny with two lives and `steps` lines; settings: of its top."""
    run.mkdir(parents=True)
    described = to_dict(recipe("roberta_tiny")) | {"steps": steps} | settings
    parts = [{"directory": str(data or run / "gone"), "fingerprint": "ab", "sequences": 9}]
    plan = {"world_size": 2, "zero_stage": 1, "sequences": 8, "accumulation": 1, "parameters": 99}
    record = {
        "run": described, "plans": [plan], "data": parts, "tokenizer_sha256": "cd",
        "order_version": 1, "attention": "sdpa", "begun_from": "", "initial_weights": {},
        "versions": {"tenfold": "0.1.0"},
    }  # fmt: skip
    (run / "run.json").write_text(json.dumps(record))
    with (run / "metrics.jsonl").open("w") as file:
        for step in range(1, steps + 1):
            content: dict[str, Any] = {
                "step": step, "time": at(step), "loss": 5 / math.sqrt(step) + 2,
                "mlm_loss": 5 / math.sqrt(step) + 2, "mask_loss": 5 / math.sqrt(step) + 2.1,
                "grad_norm": 1.0, "learning_rate": 1e-3, "tokens": 1024 * step,
                "step_seconds": 0.8, "data_seconds": 0.004, "tokens_per_second": 1280.0,
                "skipped_updates": 0, "trust_ratio_median_weights": 0.5, "memory_gb": 1.0,
                "slowest_host": "node<2>", "slowest_ratio": 1.1,
            }  # fmt: skip
            if step == steps // 2:
                content["grad_norm"] = 1e5
            if step % 20 == 0:
                content |= {
                    "validation_loss": 3.0, "validation_mask_loss": 3.1,
                    "validation_loss/news": 2.5, "validation_loss/books": 3.5,
                }  # fmt: skip
            file.write(json.dumps(content) + "\n")
    middle = steps // 2
    history = [
        f"{START}\t7\tbegan\tjob.log", f"{at(middle)}\t7\tfailed\ta node <b>died</b>",
        f"{at(middle)}\t8\tbegan\tjob.log", f"{at(steps + 5)}\t8\tended\t",
    ]  # fmt: skip
    (run / "history.tsv").write_text("\n".join(history) + "\n")
    return run


def at(second: int) -> str:
    """A time that many seconds after START."""
    hours, rest = divmod(second, 3600)
    return f"2026-01-{1 + hours // 24:02d}T{hours % 24:02d}:{rest // 60:02d}:{rest % 60:02d}Z"

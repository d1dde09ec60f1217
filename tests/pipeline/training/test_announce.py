import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models

from pipeline.training.announce import describe_example, dry_run
from tests.pipeline.conftest import Arguments, job

Planned = Callable[..., tuple[str, str]]


@pytest.fixture
def planned(
    monkeypatch: pytest.MonkeyPatch, arguments: Arguments, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Planned:  # fmt: skip
    """Output and errors of a dry run with more arguments; nothing is written."""

    def planned(*extra: object, **settings: object) -> tuple[str, str]:
        dry_run(job(monkeypatch, arguments(tmp_path / "run", "--dry-run", *extra, **settings)))
        assert not (tmp_path / "run").exists()
        return capsys.readouterr()

    return planned


def test_a_dry_run_says_how_a_step_is_divided(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, errors = planned("--ranks", 4, batch__per_device=3)
    assert "16 sequences = 4 ranks x 2 micro-batches x 2 rows; ZeRO stage 1" in output
    assert "  run: 20 steps in fp32 with lamb, learning rate up to 0.02 after " in output
    assert "DeepSpeed" not in output and errors == ""
    output, _ = planned("--ranks", 4, "--verbose", batch__per_device=3)
    assert "'gradient_accumulation_steps': 2" in output
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert "16 sequences = 2 ranks x " in planned()[0]


def test_a_dry_run_says_when_it_saves(planned: Planned) -> None:
    """Of 20 steps; an interval that the run never reaches is not shown."""
    output, _ = planned(checkpoint__every=5, validation__every=20)
    assert re.search(r"saved: every 5 steps, .* each; validated after the last step$", output, re.M)


def test_a_dry_run_warns_about_what_cannot_be_meant(planned: Planned) -> None:
    _, errors = planned(steps=10**9, schedule__warmup_steps=9, batch__sequences=100_000)
    assert "warning: a step reads 100,000 sequences, but the data have only " in errors
    assert "a step takes at least " in errors and "without a GPU" in errors
    output, errors = planned("--ds", "zero0", precision="fp32")
    assert errors == "" and "ZeRO stage 0" in output
    output, errors = planned("--verbose", "--ds", "zero0", precision="bf16")
    assert errors.startswith("warning: zero0 runs as ZeRO stage 1: ") and errors.count("\n") == 1
    assert "ZeRO stage 1" in output and "'stage': 1" in output


def test_predicted_tokens_show_what_is_seen_and_the_answer() -> None:
    words = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "Ġthe", "Ġcat", "Ġsat", "Ġdown"]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, []))
    tokenizer.decoder = decoders.ByteLevel()
    batch: Any = SimpleNamespace(
        input_ids=torch.tensor([0, 5, 4, 7, 8, 2, 0, 5, 6, 2]),
        rows=[slice(0, 6), slice(6, 10)],
        positions=torch.tensor([2, 4, 7, 0]),
        labels=torch.tensor([6, 7, 5, 0]),
        predictions=3,
    )
    assert describe_example(batch, tokenizer) == ("<s> the {<mask> | cat} sat { down | sat}</s>")
    assert describe_example(batch, tokenizer, tokens=3) == "<s> the {<mask> | cat}"

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models

from pipeline.training.announce import describe_example, dry_run
from tests.pipeline.conftest import Arguments, job


def test_dry_run_writes_nothing(
    monkeypatch: pytest.MonkeyPatch,
    arguments: Arguments,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "run"
    chosen = arguments(run, "--dry-run", "--ranks", 4, batch__per_device=3)
    dry_run(job(monkeypatch, chosen))
    output, errors = capsys.readouterr()
    assert "16 sequences = 4 ranks x 2 micro-batches x 2 rows; ZeRO stage 1" in output
    assert "  run: 20 steps in fp32 with lamb, learning rate up to 0.02 after " in output
    assert "DeepSpeed" not in output and errors == ""
    dry_run(job(monkeypatch, [*chosen, "--verbose"]))
    assert "'gradient_accumulation_steps': 2" in capsys.readouterr().out
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    dry_run(job(monkeypatch, arguments(run, "--dry-run")))
    assert "16 sequences = 2 ranks x " in capsys.readouterr().out
    assert not run.exists()


def test_a_dry_run_warns_about_what_cannot_be_meant(
    monkeypatch: pytest.MonkeyPatch,
    arguments: Arguments,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen = arguments(
        tmp_path / "run", "--dry-run", steps=10**9, schedule__warmup_steps=9,
        batch__sequences=100_000,
    )  # fmt: skip
    dry_run(job(monkeypatch, chosen))
    errors = capsys.readouterr().err
    assert "warning: a step reads 100,000 sequences, but the data have only " in errors
    assert "a step takes at least " in errors and "without a GPU" in errors


def test_stage_0_in_half_precision_is_reported(
    arguments: Arguments,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    for precision in ("fp32", "bf16"):
        chosen = arguments(
            tmp_path / "run", "--dry-run", "--verbose", "--ds", "zero0", precision=precision
        )
        dry_run(job(monkeypatch, chosen))
        output, errors = capsys.readouterr()
        if precision == "fp32":
            assert errors == "" and "ZeRO stage 0" in output
        else:
            assert errors == (
                "warning: zero0 runs as ZeRO stage 1: DeepSpeed's stage 0 is exact in fp32 only\n"
            )
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

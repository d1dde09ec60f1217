"""A model that transformers saved, continued on a text with two commands, and loaded again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import transformers

from pipeline.data.tokenizers.folders import read_vocabulary
from tests.conftest import Command
from tests.pipeline.released.models import save_model


def test_two_commands_continue_a_model(
    command: Command, tiny_tokenizer: Path, sample_text: list[str], tmp_path: Path
) -> None:
    """Its table has more rows than its tokenizer has ids."""
    vocabulary = read_vocabulary(tiny_tokenizer)
    rows = vocabulary.size + 48
    model = save_model("RobertaForMaskedLM", tmp_path / "my model", vocabulary, vocab_size=rows)
    (tmp_path / "text").mkdir()
    text = "\n".join(json.dumps({"text": document}) for document in sample_text[:40])
    (tmp_path / "text" / "mine.jsonl").write_text(text)
    root = {"TENFOLD_ROOT": str(tmp_path / "data"), "OMP_NUM_THREADS": "1"}

    def succeed(name: str, *arguments: object) -> str:
        done: subprocess.CompletedProcess[str] = command(name, *arguments, **root)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    said = succeed(
        "prepare", "--corpus", "mine", "--input", tmp_path / "text", "--recipe", model,
        "--workers", 1, "--set", "data.duplicates=2",
    )  # fmt: skip
    assert f"tokenizer: {model}" in said and "vocab_size" not in said
    [shards] = (tmp_path / "data" / "shards").iterdir()
    assert shards.name.startswith("mine-my-model-")
    said = succeed(
        "train", model, "--data", shards, "--output", tmp_path / "run", "--stop-at", 3,
        "--set", "data.duplicates=2", "--set", "precision=fp32", "--set", "batch.sequences=32",
    )  # fmt: skip
    assert f"starts from the weights of {model}" in said
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["initial_weights"]["folder"] == "my model"
    assert record["run"]["name"] == "my-model"
    succeed("export", tmp_path / "run", "--output", tmp_path / "export")
    exported = transformers.RobertaForMaskedLM.from_pretrained(tmp_path / "export")
    assert exported.config.max_position_embeddings == 34
    assert len(exported.get_input_embeddings().weight) == exported.config.vocab_size == rows
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "export").model_max_length == 32
    plan = succeed("plan", model, "--data", shards, "--cpu", "--set", "data.duplicates=2")
    assert "my-model on 1 node" in plan
    settings = subprocess.run(
        [sys.executable, "-m", "pipeline.tenfold", "settings", model, "optimizer.kind"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "optimizer.kind=adamw" in settings.stdout

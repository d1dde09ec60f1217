"""A model that transformers saved, continued on a text with two commands, and loaded again."""

import json
from pathlib import Path

import transformers

from pipeline.data.tokenizers.folders import read_vocabulary
from tests.conftest import Command
from tests.pipeline.preparing import write_jsonl
from tests.pipeline.released.models import save_model


def test_two_commands_continue_a_model(
    command: Command, tiny_tokenizer: Path, sample_text: list[str], tmp_path: Path
) -> None:
    """Its table has more rows than its tokenizer has ids."""
    vocabulary = read_vocabulary(tiny_tokenizer)
    rows = vocabulary.size + 48
    model = save_model("RobertaForMaskedLM", tmp_path / "my model", vocabulary, vocab_size=rows)
    text = write_jsonl(tmp_path / "mine.jsonl", sample_text[:40])

    def succeed(name: str, *arguments: object) -> str:
        root = tmp_path / "data"
        done = command(name, *arguments, TENFOLD_ROOT=str(root), OMP_NUM_THREADS="1")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    given = ("--corpus", "mine", "--input", text, "--recipe", model, "--workers", 1)
    spans = [f"--set={change}" for change in ("objective.kind=mlm_sbo", "data.masking=span")]
    said = succeed("prepare", *given, *spans, "--dry-run")
    assert f"warning: {model} has no head of span boundaries" in said
    said = succeed("prepare", *given, "--set", "data.duplicates=2")
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
    assert "optimizer.kind=adamw" in succeed("tenfold", "settings", model, "optimizer.kind")

"""A model that transformers saved, continued on a text with two commands, and loaded again."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import transformers

from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.released.choice import read_recipe
from pipeline.released.folder import BOUNDARIES, MASKED, read_released
from tests.conftest import Command
from tests.pipeline.released.models import save_model


def write_text(folder: Path, documents: list[str]) -> Path:
    folder.mkdir()
    lines = [json.dumps({"text": document}) for document in documents[:40]]
    (folder / "mine.jsonl").write_text("\n".join(lines))
    return folder


def caller(command: Command, root: Path) -> Callable[..., str]:
    """Runs a command, which must end well, and returns its output."""

    def call(name: str, *arguments: object, code: int = 0) -> str:
        done = command(name, *arguments, TENFOLD_ROOT=str(root), OMP_NUM_THREADS="1")
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    return call


def test_two_commands_continue_a_model(
    command: Command, tiny_tokenizer: Path, sample_text: list[str], tmp_path: Path
) -> None:
    """Its table has more rows than its tokenizer has ids."""
    vocabulary = read_vocabulary(tiny_tokenizer)
    rows = vocabulary.size + 48
    model = save_model("RobertaForMaskedLM", tmp_path / "my model", vocabulary, vocab_size=rows)
    text, succeed = write_text(tmp_path / "text", sample_text), caller(command, tmp_path / "data")
    given = ("--corpus", "mine", "--input", text, "--recipe", model, "--workers", 1)
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


@pytest.mark.slow
def test_a_spanbert_that_was_released_without_heads(
    command: Command, word_vocabularies: dict[str, Vocabulary], sample_text: list[str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Refused until new heads are asked for; its export has them, and needs no settings."""
    model = save_model("BertForMaskedLM", tmp_path / "spanbert", word_vocabularies["wordpiece"])
    text, call = write_text(tmp_path / "text", sample_text), caller(command, tmp_path / "data")
    changes = [
        "data.duplicates=2", "objective.kind=mlm_sbo", "data.masking=span",
        "data.format=single_segment", "data.segments.label=none", "data.segments.short_share=0",
    ]  # fmt: skip
    sets = [part for change in changes for part in ("--set", change)]
    few = ["--set", "precision=fp32", "--set", "batch.sequences=32"]
    given = ("--corpus", "mine", "--input", text, "--recipe", model, "--workers", 1)
    said = call("prepare", *given, *sets)
    lacking = f"{model} has no head of span boundaries, which objective.kind=mlm_sbo trains; "
    assert f"warning: {lacking}" in said
    [shards] = (tmp_path / "data" / "shards").iterdir()
    run = ["--data", shards, "--output", tmp_path / "run", "--stop-at", 2]
    refused = call("train", model, *run, *sets, *few, code=2)
    assert refused.startswith(f"error: {lacking}") and refused.count("\n") == 1
    said = call("train", model, *run, *sets, *few, "--new", "heads")
    assert "new, initialized by the recipe: the head of span boundaries" in said
    export = tmp_path / "export"
    call("export", tmp_path / "run", "--output", export)
    assert read_released(export).heads == {MASKED, BOUNDARIES}
    settings = read_recipe(str(export), None).run
    assert (settings.objective.kind, settings.data.masking) == ("mlm_sbo", "span")
    transformers.BertForMaskedLM.from_pretrained(export)
    again = ["--data", shards, "--output", tmp_path / "again", "--stop-at", 2]
    said = call("train", export, *again, "--set", "data.duplicates=2", *few)
    assert "new, initialized" not in said

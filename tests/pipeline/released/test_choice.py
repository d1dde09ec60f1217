"""What a command line's RECIPE, --recipe and --set choose."""

import json
import sys
from pathlib import Path

import pytest

from pipeline import doctor, plan, prepare, train
from pipeline.base.errors import ConfigError, run_command
from pipeline.config.settings import override, to_dict
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.recipes import recipe
from pipeline.released.choice import head_advice, read_recipe, read_settings_file
from tests.pipeline.released.models import save_model


def test_settings_come_from_a_recipe_or_a_run_file(tmp_path: Path) -> None:
    changes = ["seed=7", "data.seed=7"]
    run = override(recipe("bert_tiny"), changes)
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"run": to_dict(run)}))
    chosen = read_recipe("bert_tiny", changes)
    assert (chosen.run, chosen.given, chosen.folder) == (run, recipe("bert_tiny"), None)
    assert read_recipe(str(file)).run == run
    assert read_recipe(str(file), ["seed=8"]).run == override(run, ["seed=8"])
    for content in (to_dict(run), {"run": to_dict(run), "versions": {}}):
        file.write_text(json.dumps(content))
        assert read_settings_file(file) == run
    partial = to_dict(recipe("roberta_base"))
    del partial["encoder"]["attention_dropout"]
    for text, said in (
        ("[1]", "the recipe .*run.json"),
        ("{", "the recipe .*run.json"),
        (json.dumps(partial), r"encoder\.attention_dropout"),
        ("", "the recipe .*run.json"),
    ):
        file.write_text(text) if text else file.unlink()
        with pytest.raises(ConfigError, match=said):
            read_settings_file(file)


@pytest.fixture(scope="module")
def bert(
    word_vocabularies: dict[str, Vocabulary], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A BERT without a head for pairs, in a folder that has a recipe's name."""
    folder = tmp_path_factory.mktemp("released") / "bert_base"
    return save_model("BertForMaskedLM", folder, word_vocabularies["wordpiece-uncased"])


def test_a_folder_needs_a_slash_and_a_recipes_name_wins(
    bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bert.parent)
    assert read_recipe("bert_base").run == recipe("bert_base")
    chosen = read_recipe("./bert_base", ["steps=9"])
    assert (chosen.run.name, chosen.run.steps) == ("bert_base-continued", 9)
    assert chosen.folder == Path("bert_base") and chosen.changed == ("steps",)
    Path("mine").mkdir()
    for name, said in (
        ("mine", r"\./mine"),
        ("bert_bse", "'bert_bse'; did you mean"),
        ("a/b", "hf:a/b"),
    ):
        with pytest.raises(ConfigError, match=said):
            read_recipe(name)


def test_every_command_refuses_a_model_in_a_line(
    word_vocabularies: dict[str, Vocabulary], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """With exit code 2, and before any work."""
    vocabulary, untied = word_vocabularies["wordpiece"], tmp_path / "untied"
    name = str(save_model("BertForMaskedLM", untied, vocabulary, tie_word_embeddings=False))
    capsys.readouterr()
    for command, arguments in (
        (prepare, ["--corpus", "mine", "--input", str(tmp_path), "--recipe", name]),
        (train, [name, "--data", str(tmp_path / "none"), "--output", str(tmp_path / "run")]),
        (plan, [name, "--tokens", "1e9", "--cpu"]),
        (doctor, ["--recipe", name]),
    ):
        monkeypatch.setattr(sys, "argv", [command.__name__, *arguments])
        with pytest.raises(SystemExit) as ended:
            run_command(command.main)
        output, errors = capsys.readouterr()
        assert (ended.value.code, output, errors.count("\n")) == (2, "", 1)
        assert errors.startswith(f"error: {name} ")
        assert {path.name for path in tmp_path.iterdir()} == {"untied"}


SPANS = [
    "objective.kind=mlm_sbo", "data.masking=span", "data.format=single_segment",
    "data.segments.label=none", "data.segments.short_share=0",
]  # fmt: skip


def test_a_head_that_is_lacking_is_named(
    bert: Path, word_vocabularies: dict[str, Vocabulary], tmp_path: Path
) -> None:
    """Also of a SpanBERT as it is published: nothing in the folder tells it from a BERT."""
    chosen, spans = read_recipe(str(bert)), read_recipe(str(bert), SPANS)
    bare = save_model("BertModel", tmp_path / "bare", word_vocabularies["wordpiece"])
    for each, *said in (
        (chosen, str(bert), "pairs of segments", "mlm_pair", "--set objective.kind=mlm"),
        (spans, str(bert), "span boundaries", "mlm_sbo", "--set objective.kind=mlm"),
        (read_recipe(str(bare), SPANS), str(bare), "masked words and none of span boundaries",
         "mlm_sbo"),
    ):  # fmt: skip
        assert all(part in head_advice(each) for part in (*said, "--new heads"))
    assert head_advice(chosen.with_changes(["objective.kind=mlm"])) == ""
    assert head_advice(read_recipe("bert_base")) == ""
    assert chosen.run.data.format == recipe("bert_base").data.format
    theirs = recipe("spanbert_base")
    assert spans.run.objective == theirs.objective
    for name in ("format", "segments", "masking", "masks", "mask_mode", "duplicates"):
        assert getattr(spans.run.data, name) == getattr(theirs.data, name), name
    assert head_advice(read_recipe(str(bert), [*SPANS, "objective.kind=mlm"])) == ""


def test_a_text_decides_how_long_a_model_is_continued(bert: Path) -> None:
    assert read_recipe(str(bert)).within_passes(2_000_000).steps == 9_765
    assert read_recipe(str(bert), ["steps=20000"]).within_passes(2_000_000).steps == 20_000
    assert read_recipe("bert_base").within_passes(10) == recipe("bert_base")

"""Model cards say what the run's files say; their code loads the folder."""

import json
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from pipeline.config.run import Run
from pipeline.config.settings import override
from pipeline.data.shards.manifest import read_manifest
from pipeline.data.tokenizers.folders import save_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.planning.build import build_model
from pipeline.recipes import recipe
from pipeline.released.choice import read_recipe
from pipeline.reporting.curves import Curve
from pipeline.reporting.model_card import CardFacts, base_recipe, commands, model_card
from pipeline.reporting.run_summary import read_run
from pipeline.reporting.score_files import Score
from pipeline.training.network_arguments import parse_export, parse_train
from pipeline.training.weights.model_folders import write_folder
from tests.pages import Page
from tests.pipeline.reporting.small_runs import write_run

ROBERTA = {"architectures": ["RobertaForMaskedLM"], "model_type": "roberta"}
SMALL = (
    "encoder.layers=1", "encoder.width=64", "encoder.heads=1", "encoder.feed_forward=64",
    "data.vocab_size=2000",
)  # fmt: skip
ONE_LAYER = "objective.generator.layers=1"
SCORE = Score("/srv/me/runs/a", "sst2: accuracy", 0.8, 0.7, 0.9, "5 seeds", "classification")


def facts(tmp_path: Path, prepared: Path, *settings: str, step: int = 60) -> CardFacts:
    path = tmp_path / "my run"
    if not path.exists():
        write_run(path, data=prepared)
    return CardFacts(
        run=override(recipe("roberta_tiny"), ["steps=100", *settings]), step=step, length=32,
        summary=read_run(path, step), manifest=read_manifest(prepared),
    )  # fmt: skip


def test_what_a_card_says(tmp_path: Path, prepared: Path) -> None:
    given = replace(
        facts(tmp_path, prepared), scores=[SCORE], score_files=[Path("/srv/me/scores.json")],
        languages=["en"],
    )  # fmt: skip
    text = model_card(given, ROBERTA)
    head = ModelCard(text).data
    assert (head.license, head.license_name) == ("other", "cc-by-2.5-cc-by-sa-3.0-public-domain")
    assert (head.language, head.library_name) == (["en"], "transformers")
    assert (head.pipeline_tag, head.tags) == ("fill-mask", ["roberta", "mlm", "tenfold"])
    assert [r.metric_value for r in head.eval_results or ()] == [0.8]
    manifest = read_manifest(prepared)
    for expected in (
        "# my run, step 60", "from random weights: step 60 of 100, 61,440 tokens.",
        f"| articles | CC BY-SA 3.0 | {manifest.corpora['articles']['documents']:,} |",
        "| steps | 100 | 2400 | 2400 |", "| optimizer.kind | lamb | lamb | adamw |",
        "| held-out loss at \\[MASK\\] | 3.1000 | 60 |", "| tenfold | 0.1.0 |",
        f"| data {prepared.name} | {manifest.fingerprint} |", manifest.tokenizer["sha256"],
        "| a | sst2: accuracy | 0.8000 | 0.7000 to 0.9000 | 5 seeds |",
        "the learning rate was not at its end",
    ):  # fmt: skip
        assert expected in text, expected
    for absent in (str(tmp_path), "/srv", "tokens per second", "2026", "node"):
        assert absent not in text, absent


def test_later_lines_of_the_run_change_nothing(tmp_path: Path, prepared: Path) -> None:
    before = model_card(facts(tmp_path, prepared, step=40), ROBERTA)
    with (tmp_path / "my run" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 101, "loss": 99.0, "tokens": 10**9}) + "\n")
    (tmp_path / "my run" / "history.tsv").unlink()
    assert model_card(facts(tmp_path, prepared, step=40), ROBERTA) == before
    assert model_card(facts(tmp_path, prepared), ROBERTA) != before


def test_what_is_unknown_is_said(tmp_path: Path, prepared: Path) -> None:
    given = facts(tmp_path, prepared)
    manifest = given.manifest
    manifest.corpora["articles"]["licence"] = "unknown"
    text = model_card(given, ROBERTA)
    assert ModelCard(text).data.license == "unknown" and ModelCard(text).data.language is None
    for expected in (
        "The licence of articles is not known", "languages of the text were not stated",
        "No scores were given",
    ):  # fmt: skip
        assert expected in text
    given.summary.data.append(("/data/shards/other", None))
    text = model_card(given, ROBERTA)
    assert "other: not there any more" in text and "The licence of articles, other is" in text


def test_dropout_that_transformers_cannot_state_is_said(tmp_path: Path, prepared: Path) -> None:
    modern = {"architectures": ["ModernBertForMaskedLM"], "model_type": "modernbert"}
    earlier = [
        'phases=[{"steps": 70, "sequence_length": 32, "sequences": 64}]',
        'phases.0.settings=["encoder.dropout=0.2"]',
    ]
    run = override(recipe("modernbert_tiny"), ["encoder.dropout=0.1", *earlier])
    given = replace(facts(tmp_path, prepared), run=run)
    plain = replace(given, run=recipe("modernbert_tiny"))
    for each, config, dropouts in (
        (given, modern, {"0.2"}), (replace(given, step=80), modern, {"0.2", "0.1"}),
        (plain, modern, set()), (facts(tmp_path, prepared), ROBERTA, set()),
    ):  # fmt: skip
        said = re.findall("with a dropout of (.*) of attention's", model_card(each, config))
        assert {*said} == dropouts


def test_a_pooler_that_pretraining_did_not_train_is_said(tmp_path: Path, prepared: Path) -> None:
    given = facts(tmp_path, prepared)
    for architecture, pooler in (
        ("RobertaForMaskedLM", "roberta.pooler.dense"), ("BertForMaskedLM", "bert.pooler.dense"),
        ("AlbertForMaskedLM", "albert.pooler"), ("BertForPreTraining", ""),
        ("ModernBertForMaskedLM", ""), ("ElectraForMaskedLM", ""),
    ):  # fmt: skip
        family = architecture.partition("For")[0].lower()
        card = model_card(given, {"architectures": [architecture], "model_type": family})
        assert re.findall(r"(\S*pooler\S*), is not trained", card) == [pooler] * bool(pooler)


def test_a_fork_and_a_run_from_a_folder(tmp_path: Path, prepared: Path) -> None:
    given = facts(tmp_path, prepared)
    given.summary.record["begun_from"] = "/srv/me/runs/first/checkpoints/step-00000900"
    assert "from step-00000900 of the run first:" in model_card(given, ROBERTA)
    assert "--from runs/first/900" in commands(given)[0]
    given.summary.record["begun_from"] = ""
    given.summary.record["initial_weights"] = {"folder": "theirs", "sha256": "ab", "new": []}
    assert "from the weights of theirs (sha256 ab):" in model_card(given, ROBERTA)
    assert "--init theirs" in commands(given)[0]
    assert "- held-out loss " not in model_card(given, ROBERTA)
    for name, before in (("validation", 4.0), ("general", 4.25)):
        curve = given.summary.curves.curves[f"{name}_mlm_loss"] = Curve()
        curve.add(0, before)
        curve.add(60, before - 0.5)
    said = "4.0000 -> 3.5000 on your text, 4.2500 -> 3.7500 on the general sample (no forgetting)"
    assert f"- held-out loss {said}" in model_card(given, ROBERTA)


@pytest.mark.parametrize(
    "settings",
    [
        (), ("name=mine", "optimizer.peak_lr=1e-05", "data.masks.rate=0.3"),
        ('batch.mixture=[{"corpus": "it\'s", "weight": 1.0}]', "encoder.dropout=0",
         'phases=[{"steps": 9, "sequence_length": 16, "sequences": 8}]'),
        ("epochs=2", "steps=77", "schedule.warmup_steps=3"),
    ],
)  # fmt: skip
def test_the_commands_make_the_same_run(
    settings: tuple[str, ...], tmp_path: Path, prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = replace(facts(tmp_path, prepared, *settings), languages=["en", "de"])
    train, export = (shlex.split(line) for line in commands(given))
    assert train[:3] == ["python", "-m", "pipeline.train"]
    monkeypatch.setattr(sys, "argv", train[2:])
    parsed = parse_train()
    made = read_recipe(parsed.recipe, parsed.set).run
    assert made == replace(given.run, epochs=0.0)  # steps, as the run resolved them
    assert base_recipe(given.run) == parsed.recipe
    assert parsed.data == [Path("data/shards") / prepared.name]
    assert parsed.output == Path("runs/my run")
    monkeypatch.setattr(sys, "argv", export[2:])
    again = parse_export()
    assert (again.run, again.step, again.language) == (parsed.output, 60, ["en", "de"])


@pytest.mark.parametrize(
    ("name", "settings", "tag"),
    [
        ("roberta_tiny", [], "fill-mask"), ("modernbert_tiny", [], "fill-mask"),
        ("electra_tiny", [ONE_LAYER], "feature-extraction"),
        ("electra_tiny", [ONE_LAYER, "objective.kind=replace_mlm"], "fill-mask"),
        *(pytest.param(name, settings, "fill-mask", marks=pytest.mark.slow)
          for name, settings in (("bert_tiny", []), ("spanbert_tiny", []),
                                 ("albert_tiny", ["encoder.embedding_width=16"]))),
    ],
)  # fmt: skip
def test_its_code_loads_the_folder(
    name: str, settings: list[str], tag: str, tmp_path: Path, prepared: Path,
    word_vocabularies: dict[str, Vocabulary], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    run: Run = override(recipe(name), [*SMALL, *settings])
    kind = run.data.tokenizer + "-uncased" * run.data.lower_case
    source = prepared / "tokenizer"
    if run.data.tokenizer == "byte-bpe":
        run = override(run, ["data.vocab_size=2048"])
    else:
        source = tmp_path / "tokenizer"
        save_vocabulary(word_vocabularies[kind], source, 64)
    folder = tmp_path / "model"
    write_folder(build_model(run, seed=0), source, folder)
    given = replace(facts(tmp_path, prepared), run=run)
    text = model_card(given, json.loads((folder / "config.json").read_text()))
    assert ModelCard(text).data.pipeline_tag == tag
    (code,) = Page("README.md", text).blocks("python")
    monkeypatch.chdir(folder.parent)  # Python imports from the current folder, which may be hostile
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    said = capsys.readouterr().out.splitlines()
    assert len(said) >= 5 and all("% " in line for line in said)
    assert type(names["encoder"]).__name__.endswith("Model")

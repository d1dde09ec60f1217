import json
import re
import shutil
from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError
from pipeline.data.shards.manifest import read_manifest
from pipeline.data.tokenizers.vocabulary import Vocabulary
from tests.pipeline.conftest import NO_DROPOUT, PHASE, STEPS, Arguments, job, with_data
from tests.pipeline.released.models import save_model


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--ds zero9", "no ds file is called zero9"),
        ("--stop-at 21", "--stop-at 21 is not a step of the run"),
        ("--stop-at 0", "--stop-at 0 is not a step of the run"),
        ("--set epochs=10", "steps=20 and epochs=10 both say"),
        ("--init model --from run", "--init starts a run from weights, --from from"),
        ("--new vocabulary", "--new names what does not come from --init MODEL_DIR; give"),
        ("--set batch.warmup_steps=21", "batch.warmup_steps=21 is longer than the run"),
        ("--set precision=fp16", "precision='fp16' is not a choice; choose one of fp32, bf16"),
        ("--set optimizer.peak_lr=-1e-3", "peak_lr=-0.001 is out of range; choose one in (0, inf)"),
        ("--set schedule.end_lr=-1", "end_lr=-1.0 is out of range; choose one in [0, inf)"),
        ("--set optimizer.beta1=-0.1", "beta1=-0.1 is out of range; choose one in [0, 1)"),
        ("--set optimizer.beta1=1", "beta1=1.0 is out of range; choose one in [0, 1)"),
        ("--set optimizer.beta2=1.5", "beta2=1.5 is out of range; choose one in [0, 1)"),
        ("--set optimizer.eps=0", "eps=0.0 is out of range; choose one in (0, 1)"),
        ("--set optimizer.clip_norm=-1", "clip_norm=-1.0 is out of range"),
        ("--set optimizer.weight_decay=-1", "weight_decay=-1.0 is out of range"),
    ],
)
def test_a_contradictory_command_line_is_refused(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch, words: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        job(monkeypatch, [*arguments(Path("run")), *words.split()])


def without_steps(words: list[str]) -> list[str]:
    place = words.index(f"steps={STEPS}")
    return words[: place - 1] + words[place + 1 :]


def test_epochs_become_steps_that_a_run_keeps(
    lesson: Path, short: Path, arguments: Arguments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The most steps within the passes; a setting that is given stays, others keep their shares."""
    rows = {}
    for folder in (lesson, short):
        rows[folder] = sum(shard.sequences for shard in read_manifest(folder).of("train"))
    usual = without_steps(arguments(tmp_path / "run"))
    run = job(monkeypatch, [*usual, "--set", "epochs=1.5"]).run
    assert run.steps == rows[lesson] * 3 // 2 // 16 and run.schedule.warmup_steps == 2
    kept = usual.index("schedule.warmup_steps=2")
    run = job(monkeypatch, [*usual[: kept - 1], *usual[kept + 1 :], "--set", "epochs=1.5"]).run
    assert run.schedule.warmup_steps == round(100 * run.steps / 2_400)  # of the recipe
    # a phase, whose steps are given, over other rows
    phases = json.dumps([PHASE | {"steps": 700}])
    words = with_data([*usual, "--set", f"phases={phases}", "--set", "epochs=3"], short, lesson)
    found = job(monkeypatch, words).run
    first, last = found.phases[0].steps, found.steps - found.phases[0].steps
    assert first == 700 and last > 0
    passes = [first * 24 / rows[short] + (last + more) * 16 / rows[lesson] for more in (0, 1)]
    assert passes[0] <= 3 < passes[1]
    with pytest.raises(ConfigError, match=r"epochs=0\.0001 is less than a step"):
        job(monkeypatch, [*usual, "--set", "epochs=1e-4"])
    # a run with a checkpoint keeps its steps, whatever its data have become
    shutil.copytree(Path(__file__).parents[2] / "golden" / "runs" / "roberta", tmp_path / "run")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    record["run"] |= {"epochs": 1.5, "steps": 17}
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    assert job(monkeypatch, [*usual, "--set", "epochs=1.5"]).run.steps == 17
    assert job(monkeypatch, [*usual, "--set", "epochs=2"]).run.steps == rows[lesson] * 2 // 16
    # as a recipe, its epochs hold for other data, unless steps are given
    again = [str(tmp_path / "run" / "run.json"), "--data", str(lesson), "--output", "x"]
    assert job(monkeypatch, again).run.steps == rows[lesson] * 3 // 2 // 16
    other = job(monkeypatch, [*again, "--set", "steps=7", "--set", "schedule.warmup_steps=1"]).run
    assert (other.steps, other.epochs) == (7, 0)


def test_a_run_json_starts_the_same_run(
    trained: Path, lesson: Path, monkeypatch: pytest.MonkeyPatch, arguments: Arguments
) -> None:
    record = str(trained / "1x16" / "run.json")
    parts = [record, "--data", str(lesson), "--output", str(trained / "1x16")]
    same = job(monkeypatch, arguments(trained / "1x16", **NO_DROPOUT))
    assert job(monkeypatch, parts).run == same.run


def test_a_model_as_recipe_starts_from_its_weights_within_ten_passes(
    lesson: Path, word_vocabularies: dict[str, Vocabulary], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    vocabulary = word_vocabularies["wordpiece-uncased"]
    folder = save_model("BertForMaskedLM", tmp_path / "model", vocabulary)
    usual = [str(folder), "--data", str(lesson), "--output", str(tmp_path / "run")]
    found = job(monkeypatch, [*usual, "--set", "objective.kind=mlm"])
    assert found.init and found.init.folder == folder and not found.init.origin
    rows = json.loads((lesson / "manifest.json").read_text())["totals"]["sequences"]
    assert 0 < found.run.steps * found.run.batch.sequences <= 10 * rows
    [note] = found.notes
    steps = f"{found.run.steps:,} of 256 sequences, 10 passes over the data, instead of 12,500 of 2"
    assert note.startswith(f"steps: {steps},048") and note.endswith("; --set steps=N decides")
    assert job(monkeypatch, [*usual, "--new", "heads", "--set", "steps=9000"]).run.steps == 9_000
    for extra, message in (
        ([], "has no head of pairs of segments"),
        (["--new", "heads", "--init", "other"], "the run starts from, and --init names others"),
        (["--new", "heads", "--from", "other"], "the run starts from, and --from names others"),
    ):
        with pytest.raises(ConfigError, match=message):
            job(monkeypatch, [*usual, *extra])

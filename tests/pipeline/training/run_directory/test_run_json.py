import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import pytest

from pipeline.base.errors import CheckpointError, ConfigError
from pipeline.config.run import Run
from pipeline.config.schema import Legacy
from pipeline.config.settings import from_dict, override, to_dict
from pipeline.config.training_settings import OptimizerSettings
from pipeline.loading.dataset import Dataset
from pipeline.recipes import recipe
from pipeline.released.choice import read_settings_file
from pipeline.training.run_directory import run_json
from pipeline.training.run_directory.run_json import (
    FREE_SETTINGS,
    RunRecord,
    check_same_run,
    check_source,
    read_record,
    source_length,
)
from tests.damaged_json import changed, damaged
from tests.pipeline.phase_data import in_languages


@pytest.fixture(scope="module")
def dataset(lesson: Path) -> Dataset:
    return Dataset.open(lesson)


def record(dataset: Dataset) -> RunRecord:
    return RunRecord.of(recipe("roberta_tiny"), [{"rows": 32}], [dataset], "elsewhere")


def test_what_is_written_is_read_and_gives_the_run(dataset: Dataset, tmp_path: Path) -> None:
    written = record(dataset)
    written.write(tmp_path)
    found = read_record(tmp_path)
    assert found == written
    assert found.directories == [dataset.directory.resolve()]
    assert found.fingerprints["data-0"] == dataset.manifest.fingerprint
    assert found.versions["torch"] and found.begun_from == "elsewhere"
    assert read_settings_file(tmp_path / "run.json") == recipe("roberta_tiny")


PHASES = '[{"steps": 5, "sequence_length": 16, "sequences": 8}]'


def test_the_longest_rows_of_a_step_are_those_of_the_phases_it_has_begun(
    dataset: Dataset, tmp_path: Path
) -> None:
    """Or longer ones that the model was trained on before: of --init, or of the forked run."""
    run = override(recipe("roberta_tiny"), ["steps=10", "encoder.positions=48", f"phases={PHASES}"])
    assert run.data.sequence_length == 32
    plain = replace(record(dataset), run=run)
    assert [plain.trained_length(step) for step in (0, 1, 5, 6, 10)] == [16, 16, 16, 32, 32]
    longer = replace(plain, initial_length=40, initial_weights={"folder": "model"})
    assert [longer.trained_length(step) for step in (1, 10)] == [40, 40]
    state = SimpleNamespace(step=5, run=to_dict(run))
    assert source_length(state, tmp_path) == 16  # type: ignore[arg-type]
    longer.write(tmp_path)
    assert source_length(state, tmp_path) == 40  # type: ignore[arg-type]


def test_free_settings_are_settings(dataset: Dataset, tmp_path: Path) -> None:
    earlier = record(dataset)
    values = {
        "data.reader": "read", "data.damaged": "skip", "checkpoint.exportable": "false",
        "logging.to": "[]", "checkpoint.keep_every": "1400",
    }  # fmt: skip
    for path in FREE_SETTINGS:
        extra = ["data.order=blocks"] if path == "data.reader" else []
        run = override(earlier.run, extra)
        now = override(run, [f"{path}={values.get(path, '7')}"])
        check_same_run(replace(earlier, run=run), now, [dataset], tmp_path)


def test_differences_are_named(dataset: Dataset, tmp_path: Path) -> None:
    earlier = record(dataset)
    run, mixed = earlier.run, override(earlier.run, ["batch.mixture_exponent=0.3"])
    own = replace(earlier, run=mixed)  # has an order of its own
    other = replace(earlier, data=[{"fingerprint": "abc", "directory": "x", "sequences": 1234}])
    fork = rf"--from {tmp_path} --output {tmp_path}-2"
    for before, now, count, match in (
        (earlier, override(run, ["data.order=blocks"]), 1, "data.order=global, now it is blocks"),
        (other, run, 1, rf"^{tmp_path} .* data x \(1,234 sequences, abc\); now .* seq.*{fork}"),
        (earlier, run, 2, r"with data (\S+ \(.*?\)); now it is \1 \+ \1\. Give"),
        (replace(earlier, order_version=0), run, 1, "with sample order 0"),
        (own, mixed, 1, "with sample order 1, this version has 2"),
        (own, override(mixed, ["batch.mixture_over=languages"]), 1,
         "mixture_over=corpora, now it is lang"),
    ):  # fmt: skip
        with pytest.raises(CheckpointError, match=match):
            check_same_run(before, now, [dataset] * count, tmp_path)
    assert (earlier.order_version, RunRecord.of(mixed, [], [dataset]).order_version) == (1, 2)


def test_a_mixture_of_languages_is_kept(prepared: Path, dataset: Dataset, tmp_path: Path) -> None:
    """Other languages would change its order; those of a run that mixes corpora may."""
    known, fewer = (
        Dataset.open(in_languages(prepared, languages, tmp_path / f"{len(languages)}"))
        for languages in ({"books": "en", "news": "en"}, {"books": "en"})
    )
    mixed = override(record(dataset).run, ["batch.mixture_exponent=0.3"])
    over = override(mixed, ["batch.mixture_over=languages"])
    earlier = RunRecord.of(over, [], [known])
    assert earlier.data[0]["languages"] == {"books": "en", "news": "en"}
    check_same_run(earlier, over, [known], tmp_path)
    for now in (fewer, Dataset.open(prepared)):
        with pytest.raises(CheckpointError, match=r"in language en, now it is \(none\), .*--from"):
            check_same_run(earlier, over, [now], tmp_path)
    with pytest.raises(CheckpointError, match=r"news of .* \(none\), now it is en"):
        check_same_run(RunRecord.of(over, [], [fewer]), over, [known], tmp_path)
    by_corpus = RunRecord.of(mixed, [], [known])
    assert "languages" not in by_corpus.data[0]
    check_same_run(by_corpus, mixed, [fewer], tmp_path)


def test_a_checkpoint_of_another_run_is_named(dataset: Dataset, tmp_path: Path) -> None:
    now = record(dataset)

    def refusal(forked: bool, *settings: str, **fingerprints: str) -> str:
        run = override(now.run, settings)
        own = now.fingerprints | {name.replace("_", "-"): v for name, v in fingerprints.items()}
        state = SimpleNamespace(run=to_dict(run), fingerprints=own, device="")
        try:
            check_source(state, now, tmp_path, forked)  # type: ignore[arg-type]
        except CheckpointError as error:
            return str(error).removeprefix(f"{tmp_path} belongs to a run with ").split(";")[0]
        return ""

    for forked in (False, True):
        assert refusal(forked) == refusal(forked, "checkpoint.keep=9") == ""
        assert refusal(forked, "encoder.width=64") == "encoder.width=64, this one has 128"
        assert refusal(forked, tokenizer="abc").startswith("tokenizer abc, this one has ")
    assert refusal(True, "optimizer.peak_lr=0.5", data_0="abc") == ""
    assert refusal(False, "optimizer.peak_lr=0.5").startswith("optimizer.peak_lr=0.5, this one")
    assert refusal(False, data_0="abc").startswith("data-0 abc, this one has ")


@dataclass(frozen=True, kw_only=True, slots=True)
class LaterOptimizer(OptimizerSettings):
    momentum: Annotated[float, Legacy(0.5)]


@dataclass(frozen=True, kw_only=True, slots=True)
class LaterRun(Run):
    """A run as a later version may define it, with one more setting."""

    optimizer: LaterOptimizer


def test_a_run_from_before_a_setting_opens_resumes_and_forks(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = record(dataset)
    old.write(tmp_path)
    checkpoint = SimpleNamespace(
        run=to_dict(old.run), fingerprints=old.fingerprints, device=old.device
    )
    monkeypatch.setattr(run_json, "Run", LaterRun)
    monkeypatch.setattr("pipeline.released.choice.Run", LaterRun)
    found = read_record(tmp_path)
    assert found.run.optimizer.momentum == 0.5  # type: ignore[attr-defined]
    assert read_settings_file(tmp_path / "run.json") == found.run
    now = from_dict(LaterRun, to_dict(old.run))
    check_same_run(found, now, [dataset], tmp_path)
    for forked in (False, True):
        check_source(checkpoint, replace(old, run=now), tmp_path, forked)  # type: ignore[arg-type]
    changed = override(now, ["optimizer.momentum=0.25"])
    with pytest.raises(CheckpointError, match=r"momentum=0.5, now it is 0.25"):
        check_same_run(found, changed, [dataset], tmp_path)
    with pytest.raises(CheckpointError, match=r"momentum=0.5, this one has 0.25"):
        check_source(checkpoint, replace(old, run=changed), tmp_path, False)  # type: ignore[arg-type]


def test_a_run_json_that_is_absent_damaged_or_of_another_version_is_refused(
    dataset: Dataset, tmp_path: Path
) -> None:
    now = from_dict(LaterRun, to_dict(recipe("roberta_tiny")))
    replace(record(dataset), run=now).write(tmp_path)
    for read in (lambda: read_record(tmp_path), lambda: read_settings_file(tmp_path / "run.json")):
        with pytest.raises(ConfigError, match=r"run.json: unknown setting optimizer.momentum; "):
            read()
    record(dataset).write(tmp_path)
    content = json.loads((tmp_path / "run.json").read_text())
    del content["run"]["data"]["seed"]
    cases: list[tuple[str | None, type[Exception], str]] = [
        (json.dumps(content), ConfigError, r"run.json: missing settings: data.seed; "),
        ('{"format": 1, "run": {}}', ConfigError, "missing settings"),
        ('{"format": 2, "run": {}}', CheckpointError, r"not of format 1.*version of Tenfold"),
        ("{", CheckpointError, "cannot be read"),
        (None, CheckpointError, r"has no run.json"),
    ]
    for text, kind, match in cases:
        (tmp_path / "run.json").unlink()
        if text is not None:
            (tmp_path / "run.json").write_text(text)
        with pytest.raises(kind, match=match):
            read_record(tmp_path)


def test_any_damage_is_a_line_that_names_the_file(dataset: Dataset, tmp_path: Path) -> None:
    record(dataset).write(tmp_path)
    path = tmp_path / "run.json"
    whole = path.read_bytes()
    values = json.loads(whole)
    wrong = [(what, json.dumps(other).encode()) for what, other in changed(values)]
    readable = 0
    for what, content in [*damaged(whole), *wrong]:
        path.write_bytes(content)
        try:
            read_record(tmp_path)
        except (CheckpointError, ConfigError) as error:
            assert str(error).startswith(str(path)), what
        else:
            readable += 1
        try:
            read_settings_file(path)
        except ConfigError as error:
            assert str(error).startswith(f"the recipe {path}"), what
    assert readable < len(wrong)

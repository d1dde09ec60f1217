"""The validation of a step is written once, by the first rank, and is owed until then."""

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.base.errors import DataError
from pipeline.cluster.stop_request import StopRequest
from pipeline.config.settings import override
from pipeline.evaluation.zero_shot.grammar import GrammarTest, count_tokens
from pipeline.loading.dataset import Dataset
from pipeline.recipes import recipe
from pipeline.training.validation import validator as module
from pipeline.training.validation.grammar_curve import open_grammar
from pipeline.training.validation.validator import Validator, describe_scores
from tests.pipeline.conftest import PAIRS_SHIPPED, hold_out_less
from tests.pipeline.phase_data import in_languages
from tests.pipeline.training.test_loop import SETTINGS, PlainEngine


class Lines:
    """Metrics in memory."""

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}
        self.written: list[dict[str, Any]] = []
        self.tables: list[tuple[int, dict[str, Any], dict[str, Any]]] = []

    def write(self, line: dict[str, Any]) -> None:
        self.written.append(line)
        self.last = line

    def draw(self) -> None:
        pass

    def write_corpora(self, step: int, corpora: dict[str, Any], languages: dict[str, Any]) -> None:
        self.tables.append((step, corpora, languages))


@pytest.fixture(scope="module")
def held_out(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards with held-out rows of articles, news and web."""
    return hold_out_less(prepared, tmp_path_factory.mktemp("held-out") / "sample", 3)


@pytest.fixture
def phase(held_out: Path) -> Any:
    return SimpleNamespace(
        number=0, plan=SimpleNamespace(rows=64), validation=[Dataset.open(held_out, "validation")],
        run=SimpleNamespace(batch=SimpleNamespace(attention="row")), held_out_rate=0.0,
    )  # fmt: skip


@pytest.fixture
def lines() -> Any:
    return Lines()


@pytest.fixture
def validator(lines: Lines) -> Validator:
    cluster: Any = SimpleNamespace(
        rank=0, world_size=1, device=torch.device("cpu"), total=lambda sums: sums, any=bool,
        agreed=contextlib.nullcontext,
    )  # fmt: skip
    engine: Any = PlainEngine(override(recipe("roberta_tiny"), SETTINGS))
    parts: Any = {"engine": engine, "metrics": lines, "watchdog": SimpleNamespace(beat=int)}
    return Validator(cluster=cluster, stop=StopRequest(), **parts)


def test_scores_are_written_and_not_owed(validator: Validator, phase: Any, lines: Lines) -> None:
    lines.last = {"step": 5, "loss": 7.0}
    assert validator.is_owed(5)
    assert validator.validate(5, phase)
    [line] = lines.written
    assert line["step"] == 5 and 0 < line["validation_loss"] < 20
    assert line["validation_loss/news"] != line["validation_loss/web"]
    assert not validator.is_owed(5) and validator.is_owed(10)
    assert validator.engine.module.training
    loaders = validator.loaders[0]
    assert validator.validate(10, phase) and validator.loaders[0] is loaders
    assert lines.last == line | {"step": 10}
    validator.metrics = None  # a rank without metrics
    assert validator.validate(15, phase) and not validator.is_owed(15)


def test_many_corpora_have_a_file_and_the_worst_are_named(
    validator: Validator, phase: Any, lines: Lines, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert validator.validate(5, phase)
    [line] = lines.written
    losses = {name: line[f"validation_mlm_loss/{name}"] for name in ("news", "articles", "web")}
    assert not lines.tables and "worst" not in capsys.readouterr().out
    monkeypatch.setattr(module, "MOST_CORPORA", 2)
    assert validator.validate(10, phase)
    few = lines.last
    assert not any("/" in name for name in few)
    assert few["validation_loss"] == line["validation_loss"]
    [(step, table, languages)] = lines.tables
    assert step == 10 and len(table) == 3 and not languages
    assert {name: table[name]["mlm_loss"] for name in losses} == losses
    assert few["validation_worst_mlm_loss"] == max(own["mlm_loss"] for own in table.values())
    assert "; worst of 3 corpora: " in capsys.readouterr().out


def test_the_log_says_while_the_loss_is_that_of_word_frequencies(
    validator: Validator, phase: Any, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Once, and once when the model is below it; random weights are above."""
    nats = module.frequency_nats(phase.validation)
    for step in (5, 10):
        assert validator.validate(step, phase)
    printed = capsys.readouterr().out
    assert printed.count("\nstep 5: word frequencies alone give ") == 1
    assert f" give {nats:.4f} at [MASK]" in printed and "step 10: word" not in printed
    monkeypatch.setattr(module, "FREQUENCY_MARGIN", -9.0)  # a loss of ln(2,048) = 7.6 is below
    for step in (15, 20):
        assert validator.validate(step, phase)
    printed = capsys.readouterr().out
    assert f"\nstep 15: the loss at [MASK] is below that of word frequencies, {nats:.4f}" in printed
    assert "step 20: the loss" not in printed
    monkeypatch.setattr(module, "FREQUENCY_MARGIN", 0.1)
    assert validator.validate(25, phase)  # a model that fell back
    assert "step 25: word frequencies alone" in capsys.readouterr().out


def test_nats_of_word_frequencies(held_out: Path, prepared: Path) -> None:
    """Those of few held-out tokens are near those of all text, not below as a plain entropy."""
    few = [Dataset.open(held_out, "validation")]
    counts = count_tokens([Dataset.open(prepared)], 2048).astype(float)
    counts[:5] = 0  # special tokens
    shares = counts[counts > 0] / counts.sum()
    entropy = -float(shares @ np.log(shares))
    assert module.frequency_nats(few) == pytest.approx(entropy, abs=0.15)
    assert 0 < count_tokens(few, 2048, "validation").sum() < counts.sum() / 10


def test_a_language_of_several_corpora_has_their_mean(
    validator: Validator, phase: Any, lines: Lines, held_out: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Weighed by the predicted tokens of their held-out rows; on the boards and in the file."""
    known = {"news": "de", "articles": "en", "web": "en"}
    directory = in_languages(held_out, known, tmp_path / "known")
    phase.validation = [Dataset.open(directory, "validation")]
    assert validator.validate(5, phase)
    line = lines.last
    counts = {
        corpus: sum(shard.masks[0].predictions for shard in part.shards)
        for corpus, part in phase.validation[0].by_corpus().items()
    }
    total = sum(counts[name] * line[f"validation_mlm_loss/{name}"] for name in ("articles", "web"))
    mean = total / (counts["articles"] + counts["web"])
    assert line["validation_mlm_loss/language/en"] == pytest.approx(mean)
    assert not any(name.endswith("language/de") for name in line)
    monkeypatch.setattr(module, "MOST_CORPORA", 2)
    assert validator.validate(10, phase)
    name = "validation_mlm_loss/language/en"
    assert lines.last[name] == line[name]
    [(_, _, languages)] = lines.tables
    assert languages["en"]["mlm_loss"] == pytest.approx(mean)


def test_the_general_sample_is_scored_at_both_ends(
    validator: Validator, phase: Any, lines: Lines, prepared: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """By its first rows only, and under names that no table of validation losses reads."""
    validator.general = Dataset.open(prepared, "validation")
    for step, at_end in ((0, True), (5, False), (10, True)):
        assert validator.validate(step, phase, at_end=at_end)
    first, between, last = lines.written
    assert first == last | {"step": 0} and "general_mask_loss" in first
    assert first["general_mlm_loss"] != first["validation_mlm_loss"]
    assert between == {k: v for k, v in first.items() if not k.startswith("general")} | {"step": 5}
    assert not any(name.startswith("general") and "/" in name for name in first)
    said = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    # random weights know less than word frequencies, which is remarked once
    assert said == ["step 0", "step 0", "before the first step", "step 5", "step 10"]
    stop, of_losses = validator.stop, validator.scored
    validator.on_batch = lambda scored: setattr(stop, "signalled", scored == of_losses - 1)
    assert not validator.validate(15, phase, at_end=True) and validator.is_owed(15)


def test_the_line_names_the_rate_of_masks_and_masked_language_modelling_first(
    validator: Validator, phase: Any, lines: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = {"mlm_loss": 7.0, "mask_loss": 7.5, "accuracy": 0.03, "pair_loss": 0.7, "loss": 7.7}
    assert describe_scores(scores) == (
        "validation loss 7.0000, at [MASK] 7.5000, accuracy 3.00%; pair 0.7000"
    )
    assert describe_scores({"pair_loss": 0.7}) == "validation loss nothing to score; pair 0.7000"
    phase.held_out_rate = 0.3  # not that of training
    assert validator.validate(5, phase)
    assert lines.last["validation_mask_rate"] == 0.3
    assert "step 5: validation loss (30 % masked) " in capsys.readouterr().out


@pytest.fixture
def grammar(prepared: Path) -> GrammarTest:
    settings = [f"validation.grammar={PAIRS_SHIPPED}", "validation.grammar_pairs=3"]
    found = open_grammar(override(recipe("roberta_tiny"), settings), prepared / "tokenizer")
    assert found
    return found


def test_grammar_stands_beside_the_losses_and_compiles_no_layer_for_its_lengths(
    validator: Validator, phase: Any, lines: Lines, grammar: GrammarTest,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    validator.engine.module.encoder.compile_layers(backend)  # type: ignore[union-attr,operator]
    assert validator.validate(5, phase) and graphs
    before = len(graphs)
    validator.grammar = grammar
    assert validator.validate(5, phase) and len(graphs) == before
    without, line = lines.written
    names = {name for name in line if name.startswith("validation_grammar")}
    assert "validation_grammar/ellipsis" in names and len(names) == 7
    assert {name: line[name] for name in line if name not in names} == without
    assert (
        f"; grammar {line['validation_grammar']:.1%} (PLL per token)\n" in capsys.readouterr().out
    )


def test_a_stop_request_or_damaged_data_leave_no_line(
    validator: Validator, phase: Any, lines: Lines, grammar: GrammarTest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Also a request within the grammar; damage becomes the reason to stop."""
    assert validator.validate(5, phase)
    of_losses, stop, validator.grammar = validator.scored, validator.stop, grammar
    validator.on_batch = lambda scored: setattr(stop, "signalled", scored > of_losses)
    assert not validator.validate(10, phase)
    assert validator.scored == of_losses + 2
    validator.on_batch = lambda scored: None
    assert stop.signalled and not validator.validate(10, phase)
    stop.signalled = False

    def damaged(*_: object, **__: object) -> None:
        raise DataError("rows/validation-00000.arrow is damaged")

    monkeypatch.setattr(module, "evaluate_corpora", damaged)
    assert not validator.validate(10, phase)
    assert "is damaged" in str(stop.mistake) and stop.requested
    assert len(lines.written) == 1 and validator.is_owed(10) and validator.engine.module.training

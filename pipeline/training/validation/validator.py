"""The held-out sequences and minimal pairs of a run -> validation_* in its metrics.

And general_*, of the general sample, at both ends of a run that starts from given weights. The log
says while the loss is still that of word frequencies, which every run learns first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from tqdm import tqdm

from model.objectives.masked_language import LossPart, Objective
from pipeline.base.errors import DataError
from pipeline.cluster.ranks import Cluster
from pipeline.cluster.stop_request import StopRequest
from pipeline.cluster.watchdog import Watchdog
from pipeline.config.formats import PLL_NAMES
from pipeline.config.mask_rates import at_rate
from pipeline.data.shards.manifest import VALIDATION
from pipeline.evaluation.corpus_scores import (
    MOST_CORPORA,
    Scores,
    corpus_fields,
    corpus_table,
    describe_worst,
    language_scores,
    worst_corpora,
)
from pipeline.evaluation.held_out import (
    evaluate,
    evaluate_corpora,
    evaluating,
    validation_loader,
    validation_loaders,
)
from pipeline.evaluation.zero_shot.grammar import GrammarTest, count_tokens, score_grammar
from pipeline.loading.dataset import Dataset
from pipeline.loading.loader import Loader
from pipeline.planning.phases import Phase
from pipeline.training.optimizer.engine import ZeroEngine
from pipeline.training.run_directory.metrics_log import Metrics
from pipeline.training.validation.before_after import GENERAL, PARTS, RATE, at_the_start
from pipeline.training.validation.general_sample import ROWS
from pipeline.training.validation.grammar_curve import GRAMMAR, grammar_fields

FREQUENCY_MARGIN = 0.1
"""Nats below those of word frequencies at which a model is taken to read the words around a mask;
on that plateau, losses are above or a few hundredths below."""


class _Stopped(Exception):
    """A stop request ended a validation."""


@dataclass(slots=True, kw_only=True)
class Validator:
    """Scores the model during training; every method is collective."""

    engine: ZeroEngine
    cluster: Cluster
    stop: StopRequest
    metrics: Metrics | None
    """None except on the first rank."""
    watchdog: Watchdog
    grammar: GrammarTest | None = None
    """Minimal pairs to score too."""
    general: Dataset | None = None
    """The general sample, if the run is scored on it."""
    loaders: dict[int, dict[str, Loader]] = field(default_factory=dict)
    """Loaders of the phases validated so far, by number and corpus."""
    on_batch: Callable[[int], None] = lambda scored: None
    """Called with the number of micro-batches scored, before each of them."""
    scored: int = 0
    """Micro-batches of the validation under way, those of the grammar's sentences included."""
    broken_at: int = -1
    """The last step whose held-out loss is not finite."""
    frequency_nats: dict[int, float] = field(default_factory=dict)
    """Of the phases validated so far, by number, see `frequency_nats`."""
    reads_context: bool = True
    """False after a loss that word frequencies alone reach."""

    @property
    def parts(self) -> tuple[LossPart, ...]:
        """The parts of the loss."""
        return cast(Objective, self.engine.module).parts

    def validate(self, step: int, phase: Phase, *, at_end: bool = False) -> bool:
        """Score the held-out sequences of a step's phase, and the grammar. False if a stop request
        ended it.

        at_end: the step is the first or the last of the run: score the general sample too. Between
        them it would cost time and decide nothing.
        """
        parts, grammar, general, self.scored = None, {}, {}, 0
        try:
            with evaluating(self.engine.module):
                parts = evaluate_corpora(
                    self.engine,
                    self.parts,
                    self._loaders_of(phase),
                    self.cluster.device,
                    total=self.cluster.total,
                    stopped=self._stops_between_batches,
                )
                grammar = self._grammar() if parts else {}  # no parts after a stop request
                general = self._general(phase) if parts and at_end else {}
        except DataError as error:
            self.stop.mistake = error
            self.cluster.any(True)  # the other ranks ask for this before every batch
        except _Stopped:
            parts = None
        if parts is None:
            return False
        scores = Scores.total(parts.values()).metrics | grammar
        if not all(math.isfinite(scores[name]) for name in PARTS if name in scores):
            self.broken_at = step
        with self.cluster.agreed():
            if self.metrics:
                rate = {RATE: phase.held_out_rate} if phase.held_out_rate else {}
                languages = language_scores(parts, phase.validation)
                fields = corpus_fields(parts, "validation_", languages, MOST_CORPORA) | rate
                self.metrics.write({"step": step, **fields, **grammar, **general})
                self.metrics.draw()
                worst = ""
                if len(parts) > MOST_CORPORA:
                    tables = corpus_table(parts), corpus_table(languages)
                    self.metrics.write_corpora(step, *tables)
                    worst = f"; {describe_worst(worst_corpora(parts))}"
                tqdm.write(f"step {step:,}: {describe_scores(scores | rate)}{worst}")
                if remark := self._beside_frequencies(scores, phase):
                    tqdm.write(f"step {step:,}: {remark}")
                if step == 0:
                    tqdm.write(at_the_start(self.metrics.last))
        return True

    def _grammar(self) -> dict[str, float]:
        """The fields of the grammar's scores; raises _Stopped on a stop request."""
        if self.grammar is None:
            return {}

        def on_batch(copies: int) -> None:
            if self._stops_between_batches():
                raise _Stopped

        # a compiled layer would be compiled again for every length of a sentence
        with torch.compiler.set_stance("force_eager"):
            scores = score_grammar(
                self.engine, self.grammar, self.cluster.device, ranks=self.cluster,
                on_batch=on_batch,
            )  # fmt: skip
        return grammar_fields(scores)

    def _beside_frequencies(self, scores: Mapping[str, float], phase: Phase) -> str:
        """A remark when the loss at [MASK] is first seen to be that of word frequencies, and when
        it is first seen below; else empty."""
        if phase.number not in self.frequency_nats:
            self.frequency_nats[phase.number] = frequency_nats(phase.validation)
        nats = self.frequency_nats[phase.number]
        below = scores.get("mask_loss", 0.0) < nats - FREQUENCY_MARGIN
        if below == self.reads_context:
            return ""
        self.reads_context = below
        if below:
            return f"the loss at [MASK] is below that of word frequencies, {nats:.4f}"
        return f"word frequencies alone give {nats:.4f} at [MASK]; the context is not used yet"

    def _general(self, phase: Phase) -> dict[str, float]:
        """The fields of the general sample's scores; raises _Stopped on a stop request."""
        if self.general is None:
            return {}
        cluster = self.cluster
        loader = validation_loader(
            [self.general], phase.plan.rows, cluster.world_size, cluster.rank,
            phase.run.batch.attention, on_gpu=cluster.device.type == "cuda", most=ROWS,
        )  # fmt: skip
        scores = evaluate(
            self.engine, self.parts, loader, cluster.device, total=cluster.total,
            stopped=self._stops_between_batches,
        )  # fmt: skip
        if scores is None:
            raise _Stopped
        return scores.fields(GENERAL)

    def _loaders_of(self, phase: Phase) -> dict[str, Loader]:
        # Kept: opening them at each validation would cost look-ups of every shard on every rank.
        if phase.number not in self.loaders:
            cluster, attention = self.cluster, phase.run.batch.attention
            self.loaders[phase.number] = validation_loaders(
                phase.validation, phase.plan.rows, cluster.world_size, cluster.rank, attention,
                on_gpu=cluster.device.type == "cuda",
            )  # fmt: skip
        return self.loaders[phase.number]

    def is_owed(self, step: int) -> bool:
        """True if the metrics lack the validation of a step."""
        return self.cluster.any(bool(self.metrics) and not self._validated(step))

    def _validated(self, step: int) -> bool:
        assert self.metrics
        # Metrics are cut to the restored step at a resume, so the last line is that step's.
        last = self.metrics.last
        return last.get("step") == step and any(name.startswith("validation_") for name in last)

    def _stops_between_batches(self) -> bool:
        self.watchdog.beat()
        self.on_batch(self.scored)
        self.scored += 1
        return self.cluster.any(self.stop.requested)


def frequency_nats(datasets: Sequence[Dataset]) -> float:
    """The nats per held-out token of a model that knows only how often each token occurs.

    That is the entropy of the counts, plus what so few counts underestimate (Miller 1955).
    """
    tokenizer = datasets[0].manifest.tokenizer
    counts = count_tokens(datasets, tokenizer["size"], VALIDATION)
    counts[[tokenizer[name] for name in ("bos", "pad", "eos", "unk", "mask")]] = 0
    counts = counts[counts > 0]
    shares = counts / counts.sum()
    return float(-(shares @ np.log(shares)) + (len(counts) - 1) / (2 * counts.sum()))


def describe_scores(scores: Mapping[str, float]) -> str:
    """The scores of a validation in a line: masked language modelling, the other parts, grammar.

    With the rate of the held-out masks, if `scores` has it.
    """
    found = [
        f"{name.removesuffix('_loss')} {loss:.4f}"
        for name, loss in scores.items()
        if name in ("pair_loss", "sbo_loss", "rtd_loss", "words_loss")
    ]
    words = "nothing to score"
    if "mlm_loss" in scores:
        words = (
            f"{scores['mlm_loss']:.4f}, at [MASK] {scores['mask_loss']:.4f}, accuracy "
            f"{scores['accuracy']:.2%}"
        )
    if GRAMMAR in scores:
        found.append(f"grammar {scores[GRAMMAR]:.1%} ({PLL_NAMES['token']})")
    others = f"; {', '.join(found)}" if found else ""
    return f"validation loss{at_rate(scores.get(RATE))} {words}{others}"

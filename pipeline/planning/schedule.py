"""Step -> learning rate and sequences: pure functions, so a resumed or forked run needs no state.

The rate rises from 0 to `peak` in `warmup_steps`. After that, where `left` is the share
of the steps after the warm-up that is still to come:

    linear               end + (peak - end) left
    polynomial           end + (peak - end) left^power
    cosine               end + (peak - end) (1 + cos(pi (1 - left))) / 2
    inverse_sqrt         peak (warmup_steps / step)^(1/2), not below end
    warmup_stable_decay  peak, then in the last decay_steps as polynomial, or with
                         decay_shape=one_minus_sqrt end + (peak - end) (1 - (1 - left)^(1/2))
    constant             peak

Google's code decays from the first step of the run and counts steps from 0, so the first update
after a warm-up has a rate of 0, and the last one a rate above `end`. With n the steps before:

    linear_from_start    peak n / warmup_steps, from n = warmup_steps on
                         end + (peak - end) (1 - n / steps): below the peak by warmup_steps / steps
    linear_times_warmup  (end + (peak - end) (1 - n / steps)) min(1, n / warmup_steps)

Who has which, as read in the code:

    BERT, ALBERT         linear_from_start: optimization.py of google-research/bert and albert
    ELECTRA              linear_times_warmup: google-research/electra, model/optimization.py
    RoBERTa, SpanBERT    linear: fairseq's polynomial_decay_schedule.py, which counts the first
                         update twice (rate peak / warmup_steps) and so is one step behind ours
    Vaswani et al. 2017  inverse_sqrt
    Loshchilov & Hutter 2017                        cosine, without restarts
    Hu et al. 2024, Haegele et al. 2024 (1 - sqrt)  warmup_stable_decay

A growing batch grows in equal increments of `batch.first_sequences`, each held equally long.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import replace
from math import cos, pi, sqrt

from pipeline.base.errors import ConfigError
from pipeline.config.run import Run
from pipeline.config.settings import override
from pipeline.config.training_settings import BatchSettings
from pipeline.data.shards.manifest import TRAIN
from pipeline.loading.compatibility import Prepared, is_masked_for, runs_of


def learning_rate(run: Run, step: int) -> float:
    """The learning rate of a step, counted from 1; the last one also holds beyond the last step.

    Except in Google's schedules, the first is above 0 and the one at `warmup_steps` is the peak.
    """
    schedule = run.schedule
    peak, end, warmup = run.optimizer.peak_lr, schedule.end_lr, schedule.warmup_steps
    if schedule.kind in ("linear_from_start", "linear_times_warmup"):
        return _from_start(run, step - 1)
    if step <= warmup:
        return peak * step / warmup
    step = min(step, run.steps)
    # No step falls if the warm-up fills the run; before the fall the quotient is above 1.
    falling = schedule.decay_steps if schedule.kind == "warmup_stable_decay" else run.steps - warmup
    left = min(1.0, (run.steps - step) / falling) if falling else 0.0
    match schedule.kind:
        case "constant":
            return peak
        case "inverse_sqrt":
            return max(end, peak * sqrt(warmup / step))
        case "cosine":
            share = (1 + cos(pi * (1 - left))) / 2
        case "linear":
            share = left
        case "warmup_stable_decay" if schedule.decay_shape == "one_minus_sqrt":
            share = 1 - sqrt(1 - left)
        case "polynomial" | "warmup_stable_decay":
            share = left**schedule.power
    return float(end + (peak - end) * share)


def _from_start(run: Run, before: int) -> float:
    """Google's learning rate after `before` steps."""
    schedule = run.schedule
    peak, end, warmup = run.optimizer.peak_lr, schedule.end_lr, schedule.warmup_steps
    # The last step's rate holds beyond it, as in `learning_rate`.
    before = min(before, run.steps - 1)
    decayed = end + (peak - end) * (1 - before / run.steps)
    if before >= warmup:
        return decayed
    whole = peak if schedule.kind == "linear_from_start" else decayed
    return whole * before / warmup


def resolve_batch_size(batch: BatchSettings, mean_tokens: float) -> BatchSettings:
    """The batch with its sequences resolved from `batch.step_tokens`, if that is set.

    mean_tokens: per training sequence, special tokens included. The expected number of tokens per
    step is matched (Liu et al. 2019, sec. 4.2, for inputs shorter than 512), so the number of
    sequences does not depend on what was read, and a seek stays one multiplication.
    """
    if not batch.step_tokens:
        return batch
    return replace(batch, sequences=max(1, round(batch.step_tokens / mean_tokens)))


def growth(batch: BatchSettings) -> tuple[tuple[int, int], ...]:
    """Growth of a batch: (sequences, first step with more) until it reaches `batch.sequences`."""
    if batch.warmup_steps == 0:
        return ()
    rises = -(-batch.sequences // batch.first_sequences) - 1  # the last rise may be smaller
    return tuple(
        # Rounded up: no rise comes early.
        (rise * batch.first_sequences, -(-batch.warmup_steps * rise // rises))
        for rise in range(1, rises + 1)
    )


def sequences_until(batch: BatchSettings, steps: int) -> int:
    """Sequences in the first `steps` optimizer steps."""
    total = counted = 0
    for sequences, end in growth(batch):
        # 0 for rises after `steps`.
        held = max(0, min(end, steps) - counted)
        total, counted = total + held * sequences, counted + held
    return total + (steps - counted) * batch.sequences


def with_steps(run: Run, steps: int, kept: Collection[str] = ()) -> Run:
    """The run with another number of steps; warm-ups, decay and phases keep their shares.

    kept: paths of settings that stay as they are.
    """
    changes = _scaled(run, steps, kept)
    return override(run, [f"{path}={count}" for path, count in changes.items()])


def _scaled(run: Run, steps: int, kept: Collection[str]) -> dict[str, int]:
    """The settings of `with_steps`, by path."""
    lengths = {
        "schedule.warmup_steps": run.schedule.warmup_steps,
        "schedule.decay_steps": run.schedule.decay_steps,
        "batch.warmup_steps": run.batch.warmup_steps,
    }
    if "phases" not in kept:
        lengths |= {f"phases.{i}.steps": phase.steps for i, phase in enumerate(run.phases)}
    # a warm-up must not be rounded to 0
    scaled = {
        path: max(1, round(count * steps / run.steps)) if count else 0
        for path, count in lengths.items()
        if path not in kept
    }
    return {"steps": steps} | scaled


def with_epochs(run: Run, data: Sequence[Prepared], kept: Collection[str] = ()) -> Run:
    """The run with the most steps whose phases make `run.epochs` passes in sum, each over the rows
    that it reads; kept: as `with_steps` takes it.

    Raises ConfigError if one step is more.
    """
    read = [(part.batch, *_rows_read(part, data)) for *_, part in runs_of(run)]

    def passes(steps: int) -> float:
        scaled, left, total = _scaled(run, steps, kept), steps, 0.0
        for number, (batch, rows, tokens) in enumerate(read):
            own = left
            if number < len(run.phases):
                own = scaled.get(f"phases.{number}.steps", run.phases[number].steps)
            if number == 0:
                growing = scaled.get("batch.warmup_steps", batch.warmup_steps)
                batch = replace(batch, warmup_steps=growing)
            whole = resolve_batch_size(batch, tokens / rows)
            total, left = total + sequences_until(whole, max(0, own)) / rows, left - own
        return total

    most = 1
    while passes(most) <= run.epochs:
        most *= 2
    steps = bisect_right(range(most), run.epochs, key=passes) - 1
    if steps < 1:
        raise ConfigError(
            f"epochs={run.epochs:g} is less than a step, which reads {passes(1):.3g} passes over "
            f"the data; add --set batch.sequences=N for smaller steps, or more epochs"
        )
    return with_steps(run, steps, kept)


def _rows_read(part: Run, data: Sequence[Prepared]) -> tuple[int, int]:
    """Training rows that a phase reads, and their tokens; of all data if none fits, which is
    refused when it is opened."""
    alike = [own for own in data if own.manifest.sequence_length == part.data.sequence_length]
    rows = tokens = 0
    for own in [own for own in alike if is_masked_for(part, own)] or alike or data:
        if part.batch.named:
            for name in part.batch.named:
                about = own.manifest.corpora.get(name, {"sequences": 0, "validation_sequences": 0})
                trained = about["sequences"] - about["validation_sequences"]
                rows += trained
                tokens += trained * about["tokens"] // about["sequences"] if trained else 0
        else:
            rows += sum(shard.sequences for shard in own.manifest.of(TRAIN))
            tokens += sum(shard.tokens for shard in own.manifest.of(TRAIN))
    return max(1, rows), tokens


def check_warm_ups(run: Run, whose: str = "") -> None:
    """Raises ConfigError for a warm-up that the run ends in; whose: before the message.

    Checked where a run is to train, not by the Run itself: one that has trained so can be exported.
    """
    for owner, steps, reached in (
        ("schedule", run.schedule.warmup_steps, "the peak of the learning rate"),
        ("batch", run.batch.warmup_steps, "the full batch"),
    ):
        if steps > run.steps:
            raise ConfigError(
                f"{whose}{owner}.warmup_steps={steps} is longer than the run of steps={run.steps}, "
                f"which never reaches {reached}; add --set {owner}.warmup_steps="
                f"{max(1, run.steps // 10)}, or --set steps={10 * steps}"
            )


def batch_advice(recipe: Run, run: Run) -> str:
    """A warning if the batch of a recipe was changed and its learning rate was not, else "".

    The rule is LAMB's (You et al. 2020, sec. 4, recalled): the rate scales with the square root of
    the batch, and the number of warm-up steps stays.
    """
    ratio = run.batch.sequences / recipe.batch.sequences
    if ratio == 1 or run.optimizer.peak_lr != recipe.optimizer.peak_lr:
        return ""
    return (
        f"batch.sequences={run.batch.sequences:,} is {ratio:.3g} x that of {recipe.name}, whose "
        f"optimizer.peak_lr={recipe.optimizer.peak_lr:g} is meant for {recipe.batch.sequences:,}; "
        f"by the square-root rule of You et al. (2020) try optimizer.peak_lr="
        f"{recipe.optimizer.peak_lr * sqrt(ratio):.3g} with the same schedule.warmup_steps"
    )

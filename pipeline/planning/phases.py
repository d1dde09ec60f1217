"""A run and its shards -> its phases, each a range of steps with its settings and data.

A phase has its own sequence length and batch, and perhaps its own masks, mixture and dropout. It
reads the directories of --data that were prepared with its length and masks; where masks are drawn
in each epoch, the directories of its length, whose masks it draws by its own settings. A phase that
mixes or names corpora reads those of a directory separately. Optimizer and schedule do not depend
on phases; they count the steps of the whole run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.base.errors import ConfigError, DataError
from pipeline.config.data_settings import prepared_settings
from pipeline.config.run import Run
from pipeline.data.shards.corpus_spans import corpus_spans
from pipeline.loading.compatibility import is_masked_for, mask_settings, runs_of
from pipeline.loading.dataset import Dataset
from pipeline.loading.order import Order
from pipeline.loading.proportions import shares_of
from pipeline.planning.mixtures import (
    CorpusUse,
    corpora_used,
    corpus_of,
    describe_mixture,
    mixture_weights,
)
from pipeline.planning.phase_plan import Plan, make_plan
from pipeline.planning.schedule import sequences_until

LATER_ORDER = 1 << 16
"""Above every sequence length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A range of steps of a run, and what they read."""

    number: int
    """Counted from 1."""
    begin: int
    """Steps of the run before this phase."""
    end: int
    """Steps of the run at the end of this phase."""
    run: Run
    """The settings in this phase, and no other phases."""
    changes: tuple[str, ...]
    """Settings of this phase besides length and batch, as `--set` takes them."""
    train: tuple[Dataset, ...]
    validation: tuple[Dataset, ...]
    order: int
    """Number of its order of samples: the sequence length for the first order of that length in a
    run, and `LATER_ORDER` more for each further one (other directories, or another mixture)."""
    before: tuple[int, ...]
    """Of a mixture, the samples of each dataset that earlier orders read: it continues after them,
    so that its rows show their next masks. Empty: none."""
    plan: Plan

    @property
    def sequence_length(self) -> int:
        """Tokens per sequence."""
        return self.run.data.sequence_length

    @property
    def held_out_rate(self) -> float:
        """The rate of the held-out masks, 0 if it is that of the training masks."""
        rate = float(self.validation[0].manifest.masking["rate"])
        return rate if rate != self.run.data.masks.rate else 0.0

    @property
    def words(self) -> str:
        """Its number, steps, sequence length and changes, in words."""
        changes = "".join(f", {change}" for change in self.changes)
        return (
            f"phase {self.number}: steps {self.begin + 1:,} to {self.end:,}, sequences of "
            f"{self.sequence_length}{changes}"
        )

    @property
    def sequences(self) -> int:
        """Sequences that it reads."""
        return round(self.plan.epochs * self.plan.train_sequences)

    @property
    def corpora_used(self) -> list[CorpusUse]:
        """The use of each corpus of its mixture; empty without one."""
        return corpora_used(self.run.batch, self.train, self.sequences)

    def sample_order(self, skipped: tuple[tuple[int, int], ...] = ()) -> Order:
        """Its order of samples; skipped: see `Order`."""
        return Order(
            kind=self.run.data.order,
            seed=self.run.seed,
            piece_rows=tuple(dataset.piece_rows for dataset in self.train),
            weights=mixture_weights(self.run.batch, self.train),
            before=self.before,
            window=self.run.batch.order_window,
            skipped=skipped,
        )

    def lines(self) -> list[str]:
        """The plan in words, with the passes over each corpus of a mixture."""
        return [*self.plan.lines(), *describe_mixture(self.run.batch, self.corpora_used)]


def make_phases(
    run: Run,
    world_size: int,
    zero_stage: int,
    train: Sequence[Dataset],
    validation: Sequence[Dataset],
) -> tuple[Phase, ...]:
    """The phases of a run, over the training and validation splits of the same directories.

    Call after `check_phases`. Raises ConfigError as `make_plan` does.
    """
    found: list[Phase] = []
    # The last phase is the run itself, without changes.
    changes = [*(phase.settings for phase in run.phases), ()]
    for number, (begin, end, part) in enumerate(runs_of(run), start=1):
        read = _read_in(run, part, train)
        own = tuple(dataset for _, dataset in read)
        held_out = _held_out_of(read, validation)
        if weights := mixture_weights(part.batch, own):
            shares_of(weights)  # refuses a weight that is too small
        owner = f"phases.{number - 1}" if number <= len(run.phases) else "batch"
        plan = make_plan(part, world_size, zero_stage, own, held_out, end - begin, owner)
        order, before = _order_of(part, own, found)
        found.append(
            Phase(
                number=number, begin=begin, end=end, run=part, changes=changes[number - 1],
                train=own, validation=held_out, order=order, before=before, plan=plan,
            )
        )  # fmt: skip
    return tuple(found)


def words_read(phases: Sequence[Phase], step: int) -> int | None:
    """Words between white space that a run reads up to a step; None if its shards do not say.

    Rows count as rows of mean length: exact for whole passes, and no more to store or reduce.
    """
    if not all(phase.plan.words for phase in phases):
        return None
    total = 0.0
    for phase in phases:
        batch = replace(phase.run.batch, sequences=phase.plan.sequences, step_tokens=0)
        read = sequences_until(batch, max(0, min(step, phase.end) - phase.begin))
        total += phase.plan.words * read / sequences_until(batch, phase.end - phase.begin)
    return round(total)


def steps_at_words(run: Run, phases: Sequence[Phase]) -> frozenset[int]:
    """The first steps after which each count of `checkpoint.at_words` is read; counts that the run
    does not reach have none. Raises DataError if the shards do not say how many words they have."""
    if not (marks := run.checkpoint.word_marks()):
        return frozenset()
    if words_read(phases, run.steps) is None:
        raise DataError(
            "checkpoint.at_words counts words, and some shards are of an older version that did "
            "not; prepare the text again, or add --set checkpoint.at_words="
        )
    steps = range(run.steps + 1)
    found = (
        bisect_left(steps, mark, key=lambda step: words_read(phases, step) or 0) for mark in marks
    )
    return frozenset(step for step in found if step <= run.steps)


def _order_of(
    part: Run, train: Sequence[Dataset], earlier: Sequence[Phase]
) -> tuple[int, tuple[int, ...]]:
    """The number of a phase's order of samples, that of an earlier phase if it continues there, and
    its `before`."""
    length = part.data.sequence_length
    alike = [phase for phase in earlier if phase.sequence_length == length]
    weights = mixture_weights(part.batch, train)
    rows = [dataset.piece_rows.tolist() for dataset in train]
    corpora = [_held(dataset) for dataset in train]
    for phase in alike:
        # What a phase that continues this order would have as its `before`.
        others = [other for other in earlier if other.order != phase.order]
        before = _read_before(train, others) if weights else ()
        own_rows = [dataset.piece_rows.tolist() for dataset in phase.train]
        own_weights = mixture_weights(phase.run.batch, phase.train)
        if (own_rows, own_weights, phase.before) != (rows, weights, before):
            continue
        # Read by size, only rows count: directories with other masks may name corpora differently.
        chosen = weights or part.batch.named or phase.run.batch.named
        if not chosen or [_held(dataset) for dataset in phase.train] == corpora:
            return phase.order, before
    # The first order of a length has the length as its number.
    last = max((phase.order for phase in alike), default=length - LATER_ORDER)
    return last + LATER_ORDER, _read_before(train, earlier) if weights else ()


def _read_before(train: Sequence[Dataset], phases: Sequence[Phase]) -> tuple[int, ...]:
    """Samples of each dataset of a mixture that phases have read; empty if they read none."""
    read: dict[object, int] = {}
    # Phases of one order continue one another, so their samples are counted together.
    for first in {phase.order: phase for phase in phases}.values():
        order = first.sample_order()
        samples = sum(phase.sequences for phase in phases if phase.order == first.order)
        # `read_of` includes the samples of earlier orders.
        counts = order.read_of(samples) - order.read_of(0)
        for dataset, count in zip(first.train, counts.tolist(), strict=True):
            spans = corpus_spans(dataset.directory, dataset.manifest, dataset.shards)
            for corpus, span in spans.items():
                key = (dataset.directory, corpus)
                rows = sum(shard.sequences for shard in dataset.shards[span])
                read[key] = read.get(key, 0) + count * rows // dataset.rows  # by size
    found = tuple(read.get((own.directory, corpus_of(own)), 0) for own in train)
    return found if any(found) else ()


def _read_in(run: Run, part: Run, train: Sequence[Dataset]) -> list[tuple[int, Dataset]]:
    """The datasets that a phase reads, with their places in `train`."""
    found = [*enumerate(train)]
    if run.phases:
        length = part.data.sequence_length
        alike = [own for own in found if own[1].manifest.sequence_length == length]
        found = [own for own in alike if is_masked_for(part, own[1])] or [  # stored masks first
            (place, dataset.drawing(part.data))
            for place, dataset in alike
            if part.data.mask_mode == "per-epoch" and dataset.masking is not None
        ]
    named = set(part.batch.named)
    if not named and not part.batch.is_mixed:
        return found
    return [
        (place, own)
        for place, dataset in found
        for corpus, own in dataset.by_corpus().items()
        if not named or corpus in named
    ]


def _held_out_of(
    read: Sequence[tuple[int, Dataset]], validation: Sequence[Dataset]
) -> tuple[Dataset, ...]:
    """The held-out rows of the datasets that a phase reads; validation: all directories'."""
    parts = {
        # Once per directory: there may be thousands of corpora.
        place: validation[place].by_corpus()
        for place in {place for place, dataset in read if dataset.part}
    }
    found: list[Dataset] = []
    for place, dataset in read:
        if dataset.part:
            held_out = parts[place].get(corpus_of(dataset))
            # A small corpus may have no held-out document.
            found += [held_out] if held_out else []
        else:
            found.append(validation[place])
    if not found:
        raise ConfigError(
            f"no document of {' and '.join(corpus_of(dataset) for _, dataset in read)} is held out "
            "to validate on; name more corpora in batch.corpora or batch.mixture"
        )
    return tuple(found)


def check_lengths(run: Run, datasets: Sequence[Dataset]) -> None:
    """Raises ConfigError unless a run of several phases has shards for each and reads all."""
    if not run.phases:
        return
    lengths = {part.data.sequence_length for *_, part in runs_of(run)}
    asked = " and ".join(map(str, sorted(lengths)))
    have = {dataset.manifest.sequence_length for dataset in datasets}
    for length in sorted(lengths - have):
        raise ConfigError(
            f"the phases of the run read sequences of {asked}, but no --data has any of {length}; "
            f"prepare the text with --set data.sequence_length={length} too and add its directory "
            "to --data, or add --set phases=[] for a run of one phase"
        )
    for dataset in datasets:
        if (length := dataset.manifest.sequence_length) not in lengths:
            raise ConfigError(
                f"no phase reads {dataset.directory}, which has sequences of {length}; the phases "
                f"of the run read {asked}; remove it, or add --set phases.0.sequence_length="
                f"{length} for a phase that does"
            )


def check_phases(run: Run, train: Sequence[Dataset]) -> None:
    """Raises ConfigError unless each phase has shards with its masks and the corpora of its
    mixture, and every directory is read by one; after `check_lengths` and `check_shards`."""
    read: set[int] = set()
    for number, (*_, part) in enumerate(runs_of(run)):
        owner = "the run" if number == len(run.phases) else f"phases.{number}"
        found = _read_in(run, part, train)
        if not found and not part.batch.named:
            raise ConfigError(_without_masks(owner, part, train))
        _check_named(owner, part, train, [dataset for _, dataset in found])
        read |= {place for place, _ in found}
    # A directory that no phase reads is a mistake of --data, not text to ignore.
    for place, dataset in enumerate(train):
        if place not in read:
            raise ConfigError(
                f"no phase reads {dataset.directory}, which has {' and '.join(_held(dataset))} in "
                f"sequences of {dataset.manifest.sequence_length} with data.masks.rate="
                f"{dataset.manifest.data['masks.rate']}; remove it from --data, or change "
                "batch.mixture, batch.corpora or the settings of a phase"
            )


def _without_masks(owner: str, part: Run, train: Sequence[Dataset]) -> str:
    wanted = mask_settings(part)
    length = part.data.sequence_length
    nearest = next(dataset for dataset in train if dataset.manifest.sequence_length == length)
    prepared = prepared_settings(nearest.manifest.data, nearest.directory)
    differing = {path: value for path, value in wanted.items() if prepared.get(path) != value}
    asked = " and ".join(f"data.{path}={value}" for path, value in differing.items())
    have = " and ".join(f"data.{path}={prepared.get(path)}" for path in differing)
    return (
        f"{owner} asks for {asked} in sequences of {length}, but {nearest.directory} was prepared "
        f"with {have}; prepare the text with {asked} too and add its directory to --data, or "
        "prepare it once with --set data.mask_mode=per-epoch --set data.duplicates=0, whose masks "
        "every phase draws by its own settings"
    )


def _check_named(owner: str, part: Run, train: Sequence[Dataset], read: Sequence[Dataset]) -> None:
    """Raises ConfigError if a phase reads no shards of a corpus that it names."""
    path = "batch.mixture" if part.batch.mixture else "batch.corpora"
    have = {corpus for dataset in read for corpus in _held(dataset)}
    if missing := [name for name in part.batch.named if name not in have]:
        for dataset in train:
            held_out = {*_held(dataset)} - dataset.by_corpus().keys()
            if only := [name for name in missing if name in held_out]:
                raise ConfigError(
                    f"{path} of {owner} names {' and '.join(only)}, of which {dataset.directory} "
                    f"has no training sequences; remove it from {path}, or prepare more of its "
                    "documents"
                )
        raise ConfigError(
            f"{path} of {owner} names {' and '.join(missing)}, but no --data that it reads holds "
            f"that; add the directory, or remove it from {path}"
        )


def _held(dataset: Dataset) -> list[str]:
    """The names of a dataset's corpora."""
    return [*dataset.manifest.corpora]


def phase_of(phases: Sequence[Phase], step: int) -> Phase:
    """The phase of the step after `step` steps; the last phase if there is none."""
    return next((phase for phase in phases if step < phase.end), phases[-1])

"""The phases of a run and its machines -> warnings about a run that is probably a mistake.

Times are lower bounds, from rates that no such device exceeds, so that a warning is never wrong
about a run that is merely slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.base.durations import in_one_unit
from pipeline.planning.phases import LATER_ORDER, Phase, words_read
from pipeline.released.continued import MOST_CONTINUED_PASSES

MOST_PASSES = 100.0
"""Passes over the data above which a warning is due; BERT made 40."""
MOST_REPEATS, SHOWN = 10.0, 5
"""Passes over a corpus of a mixture above which a warning is due, if they are also more than twice
those by size, and corpora that it names."""
CPU_FLOPS = 150e9
"""Per second and core, with 512-bit vectors in fp32."""
GPU_FLOPS = 1e15
"""Per second: about the dense bf16 rate of an H100."""
LONGEST_STEP = {"cpu": 600.0, "cuda": 3600.0}
LONGEST_RUN = {"cpu": 60 * 86400.0, "cuda": 365 * 86400.0}
"""Seconds above which a warning is due."""


@dataclass(frozen=True, slots=True)
class Machines:
    """The machines that a run is to train on."""

    device: str
    """cpu or cuda."""
    ranks: int
    cores: int
    """Cores of all ranks; 0 if unknown."""

    @property
    def flops(self) -> float:
        """The most floating point operations per second; 0 if unknown."""
        return self.ranks * GPU_FLOPS if self.device == "cuda" else self.cores * CPU_FLOPS

    @property
    def words(self) -> str:
        """`8 GPUs` or `2 cores without a GPU`."""
        count = self.ranks if self.device == "cuda" else self.cores
        noun = f"{'GPU' if self.device == 'cuda' else 'core'}{'s' * (count != 1)}"
        return f"{count:,} {noun}{'' if self.device == 'cuda' else ' without a GPU'}"


def doubts(phases: Sequence[Phase], machines: Machines, *, continued: bool = False) -> list[str]:
    """A warning for each thing that is likely a mistake; continued: the run starts from a model."""
    return [
        *_about_data(phases, continued),
        *_about_repeats(phases),
        *_about_time(phases, machines),
        *_about_marks(phases),
    ]


def _about_data(phases: Sequence[Phase], continued: bool) -> list[str]:
    most, usual, who = MOST_PASSES, 40.0, "BERT made 40"
    if continued:
        most = usual = MOST_CONTINUED_PASSES
        who = f"{most:.0f} are enough to continue a model"
    found, passes = [], dict.fromkeys((phase.order for phase in phases), 0.0)
    for phase in phases:
        plan, where = phase.plan, f"phase {phase.number}: " if len(phases) > 1 else ""
        # Passes add up by order: phases of one order read on in the same rows.
        passes[phase.order] += plan.epochs
        if plan.sequences > plan.train_sequences:
            found.append(
                f"{where}a step reads {plan.sequences:,} sequences, but the data have only "
                f"{plan.train_sequences:,}: it reads some of them more than once; give more data, "
                "or lower batch.sequences"
            )
    for order, count in passes.items():
        # A batch larger than its data has been reported: the same remedy twice says less.
        if count > most and not found:
            of = (
                f" of the data of length {order % LATER_ORDER}"
                if len(passes) > 1
                else " over the data"
            )
            steps = sum(phase.end - phase.begin for phase in phases)
            found.append(
                f"the run makes {count:,.0f} passes{of}, where {who}; give more data, or "
                f"fewer steps: --set steps={max(1, int(steps * usual / count))} makes {usual:.0f}"
            )
    return found


def _about_repeats(phases: Sequence[Phase]) -> list[str]:
    """A warning if a mixture repeats corpora often that reading by size would not."""
    passes: dict[str, float] = {}
    for phase in phases:
        for use in phase.corpora_used:
            passes[use.corpus] = passes.get(use.corpus, 0) + use.passes
    # Passes of all corpora if nothing were weighed.
    by_size = sum(phase.plan.epochs for phase in phases)
    most = max(MOST_REPEATS, 2 * by_size)
    often = sorted((count, name) for name, count in passes.items() if count > most)
    if not often:
        return []
    # From the end of the ascending list: most repeated first.
    worst = ", ".join(f"{name} {count:,.0f} times" for count, name in often[: -SHOWN - 1 : -1])
    of = "corpus" if len(passes) == 1 else "corpora"
    return [
        f"the mixture reads {len(often):,} of {len(passes):,} {of} more than {most:,.0f} "
        f"times, by size {by_size:,.1f} times: {worst}; give more text of them, or weigh them less "
        "(batch.mixture_exponent nearer to 1, lower weights in batch.mixture)"
    ]


def _about_time(phases: Sequence[Phase], machines: Machines) -> list[str]:
    if not machines.flops:
        return []
    step = max(phase.plan.step_flops for phase in phases) / machines.flops
    total = sum((phase.end - phase.begin) * phase.plan.step_flops for phase in phases)
    run = total / machines.flops
    if step <= LONGEST_STEP[machines.device] and run <= LONGEST_RUN[machines.device]:
        return []
    return [
        f"on {machines.words} a step takes at least {in_one_unit(step)}, the whole run "
        f"{in_one_unit(run)}; train on more or faster devices, or choose a smaller recipe"
    ]


def _about_marks(phases: Sequence[Phase]) -> list[str]:
    """A warning if the run ends before it has read the words of `checkpoint.at_words`."""
    last = phases[-1]
    marks = last.run.checkpoint.word_marks()
    if not marks or (words := words_read(phases, last.end)) is None or marks[-1] <= words:
        return []
    beyond = [f"{mark:,}" for mark in marks if mark > words]
    named = ", ".join(beyond[:SHOWN]) + (" and more" if len(beyond) > SHOWN else "")
    return [
        f"the run reads {words:,} words, so there is no checkpoint at {named} of "
        "checkpoint.at_words; its last step is saved anyway; give more steps, or lower the counts"
    ]

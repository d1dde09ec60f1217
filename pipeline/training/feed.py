"""A rank's training data: the shards of one phase of the run, then those of the next."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from tqdm import tqdm

from model.objectives.span_boundary import MOST_TARGETS
from pipeline.cluster.ranks import Cluster
from pipeline.config.run import Run
from pipeline.config.training_settings import GENERATOR_KINDS
from pipeline.loading.dataset import Dataset
from pipeline.loading.loader import Loader
from pipeline.loading.micro_batch import BatchForm, Extras
from pipeline.loading.order import Located, Share
from pipeline.loading.staging import Staging
from pipeline.planning.phase_plan import Plan
from pipeline.planning.phases import Phase, phase_of
from pipeline.planning.schedule import growth
from pipeline.training.checkpoints.data_position import Reading, Readings, reading_of
from pipeline.training.run_progress import Progress


class Feed:
    """The phases of a run, and the loader of the current one."""

    def __init__(
        self,
        phases: Sequence[Phase],
        datasets: Sequence[Dataset],
        cluster: Cluster,
        progress: Progress,
        stage: Path | None = None,
    ) -> None:
        """datasets: the training datasets of all phases, in the order of --data; stage: directory
        on each node's disk for copies of the shards, None to read them where they are."""
        self.phases = tuple(phases)
        self.datasets = tuple(datasets)
        self.cluster = cluster
        self.stage = stage
        self._stagings: dict[Path, Staging] = {}
        """The stagings of this phase's datasets, by their directories."""
        self.phase = phase_of(self.phases, progress.step)
        """The phase of the next step."""
        self.loader = self._open(progress.readings)
        """The loader of this phase."""

    def enter(self, step: int, readings: Readings) -> bool:
        """Enter the phase of step `step`; returns whether it is a new one."""
        entered, self.phase = self.phase, phase_of(self.phases, step)
        if self.phase is not entered:
            self.loader.close()
            # Copies that the new phase does not read make room for those that it does.
            read: dict[Path, set[str]] = {}
            for dataset in self.phase.train:
                read.setdefault(dataset.directory, set()).add(dataset.part)
            self._end_staging(self._stagings.keys() - read, remove=True)
            for directory, staging in self._stagings.items():
                staging.keep(read[directory])
            self.loader = self._open(readings)
        return self.phase is not entered

    def close(self, done: bool) -> None:
        """End all reading; done: the run needs its copies of shards no more."""
        self.loader.close()
        self._end_staging(set(self._stagings), remove=done)

    def reading(self, progress: Progress) -> Reading:
        """The position in the shards of the current phase."""
        return reading_of(progress.readings, self.phase.order)

    def last_sample(self, progress: Progress) -> Located:
        """The last sample read [1] in the current phase."""
        return self.loader.order.locate(np.array([self.reading(progress).sequences - 1]))

    def read_in(self, step: int) -> tuple[int, int]:
        """Order and number of the sequences of step `step`, over all ranks."""
        phase = phase_of(self.phases, step)
        share = share_of(phase.run, phase.plan, self.cluster)
        return phase.order, share.sequences_of(step)

    def _open(self, readings: Readings) -> Loader:
        skipped = reading_of(readings, self.phase.order).skipped
        self._begin_staging()
        return train_loader(self.phase, self.cluster, skipped)

    def _begin_staging(self) -> None:
        """Let the loader of this phase read copies, and make them on one process per node."""
        if self.stage is None:
            return
        for dataset in self.phase.train:
            staging = self._stagings.get(dataset.directory)
            if staging is None:
                staging = self._stagings[dataset.directory] = Staging(
                    dataset.directory, dataset.manifest, self.stage, _tell,
                    announce=self.cluster.rank == 0,
                )  # fmt: skip
                if self.cluster.is_first_on_node:
                    staging.copy_in_background()
            dataset.stage(staging.part(dataset.shards, dataset.part))

    def _end_staging(self, directories: Iterable[Path], remove: bool) -> None:
        for directory in directories:
            self._stagings.pop(directory).close(remove)


def _tell(text: str) -> None:
    """Print a line of one node, above the progress bar."""
    tqdm.write(f"staging on {socket.gethostname()}: {text}", file=sys.stderr)


def extras_of(run: Run) -> Extras:
    """What a run needs from its training loader besides the usual fields."""
    kind = run.objective.kind
    return Extras(
        most_targets=MOST_TARGETS if kind == "mlm_sbo" else 0,
        draws_seed=run.seed if kind in GENERATOR_KINDS else None,
        dropout_seed=run.seed if run.encoder.dropout else None,
    )


def share_of(run: Run, plan: Plan, cluster: Cluster) -> Share:
    """This rank's share of every step."""
    return Share(
        sequences=plan.sequences,
        per_device=plan.rows,
        world_size=cluster.world_size,
        rank=cluster.rank,
        growth=growth(replace(run.batch, sequences=plan.sequences)),  # batch.step_tokens resolved
    )


def train_loader(
    phase: Phase, cluster: Cluster, skipped: tuple[tuple[int, int], ...] = ()
) -> Loader:
    """The loader of this rank's share of the training data of a phase; skipped: see `Order`."""
    run, plan = phase.run, phase.plan
    on_gpu = cluster.device.type == "cuda"
    return Loader(
        phase.train,
        phase.sample_order(skipped),
        share_of(run, plan, cluster),
        reader=run.data.reader,
        prefetch=2 * plan.accumulation,  # two steps
        form=BatchForm(
            attention=run.batch.attention,
            extras=extras_of(run),
            # On a CPU shapes may change, so nothing has to be dead.
            capacity=plan.on_gpu.capacity if on_gpu else None,
            pin_memory=on_gpu,
        ),
    )

"""What a rank reads while a run is under way: the shards of one phase, then those of the next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.loading.dataset import Dataset
from pipeline.loading.loader import Loader
from pipeline.loading.order import Located
from pipeline.training.checkpoints.data_position import Reading, Readings, reading_of
from pipeline.training.cluster.ranks import Cluster
from pipeline.training.model_inputs import share_of, train_loader
from pipeline.training.planning.phases import Phase, phase_of
from pipeline.training.progress import Progress


class Feed:
    """The phases of a run, one of which is under way, with its loader."""

    def __init__(
        self,
        phases: Sequence[Phase],
        datasets: Sequence[Dataset],
        cluster: Cluster,
        progress: Progress,
    ) -> None:
        """datasets: for training, of all phases, in the order of --data."""
        self.phases = tuple(phases)
        self.datasets = tuple(datasets)
        self.cluster = cluster
        self.phase = phase_of(self.phases, progress.step)
        """That of the step to come."""
        self.loader = self._open(progress.readings)
        """Of the phase."""

    def enter(self, step: int, readings: Readings) -> bool:
        """Be in the phase of the step after so many; whether that is another one."""
        entered, self.phase = self.phase, phase_of(self.phases, step)
        if self.phase is not entered:
            self.loader.close()
            self.loader = self._open(readings)
        return self.phase is not entered

    def reading(self, progress: Progress) -> Reading:
        """How far the shards of the phase are read."""
        return reading_of(progress.readings, self.phase.sequence_length)

    def last_sample(self, progress: Progress) -> Located:
        """What was read last [1], in the phase under way."""
        return self.loader.order.locate(np.array([self.reading(progress).sequences - 1]))

    def read_in(self, step: int) -> tuple[int, int]:
        """Length and number of the sequences of the step after so many, on all ranks."""
        phase = phase_of(self.phases, step)
        share = share_of(phase.run, phase.plan, self.cluster)
        return phase.sequence_length, share.sequences_of(step)

    def _open(self, readings: Readings) -> Loader:
        skipped = reading_of(readings, self.phase.sequence_length).skipped
        run, plan = self.phase.run, self.phase.plan
        return train_loader(run, plan, self.cluster, self.phase.train, skipped)

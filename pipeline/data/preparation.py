"""What the workers of one `prepare` share; see `workers.Setup`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.data.execution.tasks import Task
from pipeline.data.splits import Job, Worker, task_marker
from pipeline.data.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Preparation:
    """Documents to parts of shards: the job, and the vocabulary that every worker needs."""

    job: Job
    vocabulary: Vocabulary

    @property
    def directory(self) -> Path:
        """Where parts and logs go."""
        return self.job.directory

    def worker(self) -> Worker:
        """A process's tools."""
        return Worker.create(self.job, self.vocabulary)

    def is_done(self, names: set[str], task: Task) -> bool:
        """Whether a task's marker is among `names`."""
        return task_marker(self.directory, task.number).name in names

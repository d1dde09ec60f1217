"""Small trainings as jobs: the batch file of the large model with a tiny one, on two CPU ranks."""

import sys
from dataclasses import dataclass
from pathlib import Path

from pipeline.training.run_directory.metrics_log import read_metrics
from tests.cluster.slurm import Cluster, Job, Result

BATCH_FILE = "slurm/roberta_large.sbatch"
STEPS = 80
SETTINGS = {
    "encoder.layers": 1, "encoder.width": 32, "encoder.feed_forward": 64,
    "batch.sequences": 64, "batch.per_device": 8,
    "steps": STEPS, "schedule.warmup_steps": 2,
    "validation.every": 1000, "checkpoint.every": 1000, "logging.every": 1,
}  # fmt: skip
"""Four seconds of steps on two ranks, long enough to be disturbed on a busy machine. With dropout;
checkpoints only at interruptions."""


@dataclass(frozen=True)
class Runs:
    """Submits trainings and reads their results."""

    cluster: Cluster
    shards: Path
    folder: Path

    def arguments(self, **settings: object) -> str:
        """TENFOLD_ARGS of a small training; dots in settings are written as `__`."""
        chosen = SETTINGS | {name.replace("__", "."): value for name, value in settings.items()}
        return " ".join(f"--set {path}={value}" for path, value in chosen.items())

    def environment(self, run: Path) -> dict[str, str]:
        """The variables that a user exports for a small training into `run`."""
        return {
            "TENFOLD_VENV": sys.prefix,
            "TENFOLD_RECIPE": "roberta_tiny",
            "TENFOLD_DATA": str(self.shards),
            "TENFOLD_RUN": str(run),
            "TENFOLD_LOCAL": str(self.folder / "local"),
            "TENFOLD_ARGS": self.arguments(),
        }

    def submit(self, run: Path, *options: str, nodes: int = 2, gpus: int = 1, **more: str) -> Job:
        """A small training; `more` is added to `environment`."""
        return self.cluster.submit(
            BATCH_FILE, f"--nodes={nodes}", "--ntasks-per-node=1", "--cpus-per-task=1",
            "--mem=1G", f"--gres=gpu:{gpus}", *options, **self.environment(run) | more,
        )  # fmt: skip

    def start_in(self, job: Job, run: Path, arguments: str) -> Result:
        """Start the training of `job` once more, by hand, in the job's allocation."""
        return self.cluster.run(
            "srun", f"--jobid={job.id}", "--overlap", "--nodes=1", "--ntasks=1", "--mpi=none",
            sys.executable, "-m", "pipeline.train", "roberta_tiny", "--data", self.shards,
            "--output", run, *arguments.split(),
        )  # fmt: skip


def last_step(run: Path) -> int:
    """The last step in metrics.jsonl."""
    return max((int(line["step"]) for line in read_metrics(run)), default=0)


def weights(run: Path) -> dict[str, bytes]:
    """The tensors of the newest checkpoint, as the bytes on disk."""
    newest = run / "checkpoints" / (run / "checkpoints" / "latest").read_text().strip()
    return {path.name: path.read_bytes() for path in sorted(newest.glob("*.safetensors"))}

"""Batch files run without Slurm: stand-ins record the commands that they would start."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.slurm import ROOT, Result

RECORD = """#!/bin/sh
# Records its arguments, each on a line, after an empty line.
printf '\\n' >>{record}
printf '%s\\n' "$@" >>{record}
echo "disk: enough"
"""
SCONTROL = """#!/bin/sh
[ "$2" = hostnames ] && echo localhost || echo "JobId=7 JobState=RUNNING StdErr=/dev/null"
"""
JOB = {
    "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "localhost", "SLURM_JOB_NUM_NODES": "1",
    "SLURM_NTASKS": "1", "SLURM_TASKS_PER_NODE": "1", "SLURM_SUBMIT_DIR": str(ROOT),
}  # fmt: skip
"""What Slurm sets for a job on one node."""


@dataclass(frozen=True)
class StandIns:
    """Programs of Slurm and a Python in a folder, and a `site.env` that names it."""

    folder: Path

    @classmethod
    def write(cls, folder: Path) -> StandIns:
        """Write the programs."""
        programs = folder / "bin"
        programs.mkdir()
        record = RECORD.format(record=folder / "record")
        for name, text in {
            "srun": record, "python": record, "scontrol": SCONTROL,
            "squeue": "#!/bin/sh\necho 10:00\n", "sbatch": "#!/bin/sh\n",
        }.items():  # fmt: skip
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        return cls(folder)

    def site(self, *lines: str) -> None:
        """Write site.env: the one of the checkout, then these lines."""
        text = (ROOT / "slurm" / "site.env").read_text()
        more = [f"TENFOLD_VENV={self.folder}", f"TENFOLD_LOCAL={self.folder}/local"]
        (self.folder / "site.env").write_text("\n".join([text, *more, *lines]) + "\n")

    def run(self, script: str, *arguments: str, **environment: str) -> list[str]:
        """Run slurm/SCRIPT in `folder`; the arguments of the last program that it started."""
        result = self._run(script, *arguments, **environment)
        assert result.returncode == 0 and not result.stderr, result.stdout + result.stderr
        return (self.folder / "record").read_text().split("\n\n")[-1].split("\n")[:-1]

    def fail(self, script: str, **environment: str) -> str:
        """Run slurm/SCRIPT, which must end as for a user's mistake; what it says."""
        result = self._run(script, **environment)
        assert result.returncode == 2, result.stdout + result.stderr
        return result.stderr

    def _run(self, script: str, *arguments: str, **environment: str) -> Result:
        foreign = ("SLURM_", "SBATCH_", "SRUN_", "TENFOLD_")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        (self.folder / "record").unlink(missing_ok=True)
        return subprocess.run(
            ["bash", ROOT / "slurm" / script, *arguments], cwd=self.folder, text=True, check=False,
            capture_output=True, env=kept | JOB | {
                "PATH": f"{self.folder}/bin:{kept['PATH']}",
                "TENFOLD_SITE_ENV": str(self.folder / "site.env"),
            } | environment,
        )  # fmt: skip

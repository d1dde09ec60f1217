"""Functions of the batch files, run without Slurm."""

import os
import shlex
import subprocess

from tests.cluster.slurm import ROOT

COMMON = shlex.quote(f"{ROOT}/slurm/common.sh")


def bash(script: str, **environment: str) -> str:
    """The output of a script that has common.sh's functions."""
    result = subprocess.run(
        ["bash", "-c", f". {COMMON}; {script}"], text=True, capture_output=True,
        env=os.environ | {"TENFOLD_HOME": str(ROOT)} | environment, check=False,
    )  # fmt: skip
    assert result.returncode == 0 and not result.stderr, result.stdout + result.stderr
    return result.stdout.strip()

"""Slurm from Debian's packages, installed if missing, without starting its daemons."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
POLICY = Path("/usr/sbin/policy-rc.d")


def why_not() -> str:
    """Why this machine cannot run a cluster; "" if it can."""
    if os.geteuid():
        return "needs root: Slurm's daemons, device nodes and mount namespaces"
    if missing() and not shutil.which("apt-get"):
        return f"needs {', '.join(PROGRAMS)}, and there is no apt-get to install them"
    return ""


def missing() -> bool:
    """Whether a program is missing."""
    return not all(shutil.which(program) for program in PROGRAMS)


def install() -> None:
    """Install what is missing; updates the package lists if they are too old."""
    if not missing():
        return
    with no_daemons():
        if _apt("install", "--no-install-recommends", *PACKAGES):
            _apt("update")
            errors = _apt("install", "--no-install-recommends", *PACKAGES)
            assert not errors, f"apt-get could not install {', '.join(PACKAGES)}:\n{errors}"


@contextmanager
def no_daemons() -> Iterator[None]:
    """Inside, installing a package starts no daemon (Debian's policy-rc.d)."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def _apt(*arguments: str) -> str:
    """Run apt-get; returns the end of its output if it fails, else ""."""
    result = subprocess.run(
        ["apt-get", "-q", "-y", "-o", "Dpkg::Use-Pty=0", "-o", "DPkg::Lock::Timeout=300",
         *arguments],
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"}, timeout=600, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    return result.stdout[-2000:] if result.returncode else ""

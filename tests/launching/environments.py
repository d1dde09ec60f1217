"""Environments beside this one, for packages that it does not have."""

import subprocess
import sysconfig
import venv
from pathlib import Path


def install_beside(folder: Path, module: str, *packages: str) -> Path:
    """The python of a new environment with these packages and all of this one.

    packages: arguments of `pip install`. Raises RuntimeError if `module` cannot be imported then.
    """
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    command = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    (Path(site) / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for step in (["-m", "pip", "install", "-q", *packages], ["-c", f"import {module}"]):
        done = subprocess.run([python, *step], capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise RuntimeError(f"{module} cannot be installed: {done.stderr.strip()[-200:]}")
    return python

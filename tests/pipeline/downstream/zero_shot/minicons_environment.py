"""An environment with minicons beside this one: it wants an older pandas than ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("minicons_worker.py")
PACKAGES = ("minicons==0.3.39", "pandas>=2.2,<3", "wonderwords", "accelerate", "pytz", "tzdata")
"""Installed without what they depend on, which this environment has."""


def install(folder: Path) -> Path:
    """The new environment's python. Raises RuntimeError if it cannot be installed."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    command = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    (Path(site) / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for step in (["-m", "pip", "install", "-q", "--no-deps", *PACKAGES], ["-c", "import minicons"]):
        done = subprocess.run([python, *step], capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise RuntimeError(f"minicons cannot be installed: {done.stderr.strip()[-200:]}")
    return python


def score(python: Path, folder: Path, sentences: list[str], work: Path) -> dict[str, Any]:
    """minicons' scores of the sentences, and its seconds."""
    given, found = work / "sentences.json", work / "scores.json"
    given.write_text(json.dumps(sentences))
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    subprocess.run(
        [python, WORKER, folder, given, found], check=True, timeout=1_800, stdout=sys.stderr,
        env=environment | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
    )  # fmt: skip
    result: dict[str, Any] = json.loads(found.read_text())
    return result

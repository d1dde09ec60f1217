"""An environment with minicons beside this one: it wants an older pandas than ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.launching.environments import install_beside

WORKER = Path(__file__).with_name("minicons_worker.py")
PACKAGES = ("minicons==0.3.39", "pandas>=2.2,<3", "wonderwords", "accelerate", "pytz", "tzdata")
"""Installed without what they depend on, which this environment has."""


def install(folder: Path) -> Path:
    """The new environment's python. Raises RuntimeError if it cannot be installed."""
    return install_beside(folder, "minicons", "--no-deps", *PACKAGES)


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

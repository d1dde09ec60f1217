"""An environment with minicons beside this one: it wants an older pandas than ours."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.launching.environments import install_beside

WORKER = Path(__file__).with_name("minicons_worker.py")
PACKAGES = ("minicons==0.3.39", "pandas>=2.2,<3", "wonderwords", "accelerate", "pytz", "tzdata")
"""Installed without what they depend on, which this environment has."""


def install(folder: Path) -> Path:
    """The new environment's python. Raises RuntimeError if it cannot be installed."""
    return install_beside(folder, "minicons", "--no-deps", *PACKAGES)


class Minicons:
    """minicons, with a folder of transformers and sentences, in a process of its own."""

    def __init__(
        self, python: Path, folder: Path, sentences: list[str], work: Path, threads: int = 1
    ) -> None:
        """python: of `install`; work: an empty folder."""
        given = work / "sentences.json"
        given.write_text(json.dumps(sentences))
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
            "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
            "OMP_NUM_THREADS": str(threads),
        }  # fmt: skip
        self._found = work / "scores.json"
        self._process = subprocess.Popen(
            [python, WORKER, folder, given], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def score(self) -> tuple[list[float], float, float]:
        """The scores of the sentences, and the seconds by the clock and of CPU time."""
        assert self._process.stdin and self._process.stdout
        print(self._found, file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            match line.split():
                case ["scored", wall, cpu]:
                    return json.loads(self._found.read_text()), float(wall), float(cpu)
            print(line, end="", file=sys.stderr)
        raise RuntimeError(f"minicons ended with {self._process.wait()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

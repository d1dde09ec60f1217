"""Fine-tuning and ablations killed at 20 random moments: each ends in the same scores.

SIGKILL goes to the command and its children, then the same command runs to its end; an ablation is
killed several times on its way. Results are compared with those of an undisturbed run, to the bit,
all but times. `interruptions.py` does the same to `pipeline.train`.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import xxhash

from tests.launching import process
from tests.pipeline.experiments import small_ablation
from tests.pipeline.experiments.small_ablation import without_times
from tests.pipeline.test_finetune import words as finetune_words
from tests.pipeline.test_finetune import write_glue

KILLS = 20
SEED = 0


@dataclass(frozen=True)
class Killed:
    """A command that is killed."""

    name: str
    """Of its module in `pipeline`."""
    arguments: Callable[[Path], list[str]]
    """For an output."""
    environment: Mapping[str, str] = field(default_factory=dict)

    def start(self, output: Path) -> Any:
        """The running command, in a group of processes of its own; its messages go to a file."""
        with output.with_suffix(".log").open("w") as log:
            return process.start(
                [sys.executable, "-m", f"pipeline.{self.name}", *self.arguments(output)],
                env=os.environ | self.environment, start_new_session=True, stdout=log, stderr=log,
            )  # fmt: skip

    def complete(self, output: Path) -> float:
        """Run to the end; seconds."""
        began = time.monotonic()
        with self.start(output) as running:
            assert running.wait(600) == 0, output.with_suffix(".log").read_text()
        return time.monotonic() - began

    def kill(self, output: Path, seconds: float) -> bool:
        """Kill it after so many seconds; False if it had ended."""
        with self.start(output) as running:
            time.sleep(seconds)
            if running.poll() is not None:
                assert running.returncode == 0, output.with_suffix(".log").read_text()
                return False
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        return True


def kill_at_random_moments(
    command: Killed, output: Path, expected: dict[str, Any], seconds: float, in_a_row: bool
) -> None:
    """expected: of an undisturbed run, which took `seconds`.

    in_a_row: kill what continues after a kill too, until it ends before it is killed.
    """
    generator = random.Random(SEED)
    moments = [seconds * (kill + generator.random()) / KILLS for kill in range(KILLS)]
    if in_a_row:
        generator.shuffle(moments)
    for moment in moments:
        longest = moment / 6 if in_a_row else moment
        while not command.kill(output, longest):
            check(output, expected)
            longest *= 0.9
        if not in_a_row:
            command.complete(output)
            check(output, expected)
    if in_a_row:
        command.complete(output)
        check(output, expected)


def check(output: Path, expected: dict[str, Any]) -> None:
    """Compare a finished output, and remove it."""
    found = results(output)
    wrong = [name for name in expected if found.get(name) != expected[name]]
    assert not wrong, f"other {', '.join(wrong)} than undisturbed"
    assert found.keys() == expected.keys()
    shutil.rmtree(output)


def results(output: Path) -> dict[str, Any]:
    """Scores and results without times; predictions, weights and rows to the bit."""
    found: dict[str, Any] = {}
    for path in sorted(output.rglob("*")):
        name = path.relative_to(output).as_posix()
        if path.name in ("scores.json", "ablation.json", "result.json"):
            found[name] = without_times(json.loads(path.read_text()))
        elif path.name == "predictions.jsonl" or path.suffix in (".safetensors", ".arrow"):
            found[name] = xxhash.xxh3_64_hexdigest(path.read_bytes())
    return found


@pytest.mark.slow
def test_a_killed_fine_tuning_ends_in_the_same_scores(tmp_path: Path) -> None:
    data = write_glue(tmp_path / "glue")

    def arguments(output: Path) -> list[str]:
        return finetune_words(data, output, "--baselines", "all")

    command = Killed("finetune", arguments)
    command.complete(tmp_path / "first")  # loads what later runs find in memory
    seconds = command.complete(tmp_path / "undisturbed")
    expected = results(tmp_path / "undisturbed")
    kill_at_random_moments(command, tmp_path / "killed", expected, seconds, in_a_row=False)


@pytest.mark.slow
def test_a_killed_ablation_ends_in_the_same_table(
    tmp_path: Path, sample_text: list[str], tiny_tokenizer: Path
) -> None:
    corpus = small_ablation.write_corpus(tmp_path / "text.jsonl", sample_text)

    def arguments(output: Path) -> list[str]:
        return small_ablation.words(corpus, tiny_tokenizer, output)

    command = Killed("ablate", arguments, small_ablation.environment())
    seconds = command.complete(tmp_path / "undisturbed")
    expected = results(tmp_path / "undisturbed")
    kill_at_random_moments(command, tmp_path / "killed", expected, seconds, in_a_row=True)

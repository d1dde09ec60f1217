"""Breaks a copy of the product on purpose, and shows that a test notices each break.

    python tests/breaks.py              every break, some minutes
    python tests/breaks.py seek norm    those whose names contain one of these words

A break replaces one piece of text that occurs once in `pipeline/` and `model/`, wherever that is;
then it runs one test of the default suite by its name, and the test has to fail. The script also
runs each test on the copy without the break, where it has to pass.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Break(NamedTuple):
    """A plausible mistake."""

    name: str
    old: str
    new: str
    test: str
    """The test that notices it."""


BREAKS = [
    Break(
        "mask and kept swapped",
        "packed |= action << (2 * slot)",
        "packed |= (2 - action) << (2 * slot)",
        "test_actions_of_tokens_are_independent",
    ),
    Break(
        "one norm is skipped",
        "between = self.normalize(residual + mixed, self.attention_norm)",
        "between = Stream(residual + mixed, residual + mixed)",
        "test_logits_and_losses_are_transformers_own",
    ),
    Break(
        "off by one in the seek",
        "for step, rows in self._resolve_steps(consumed, number, pool):",
        "for step, rows in self._resolve_steps(consumed + (consumed > 0), number, pool):",
        "test_a_batch_that_grows",
    ),
    Break(
        "lost fsync",
        "os.fsync(file.fileno())\n    except OSError as error:\n        raise CheckpointError",
        "pass\n    except OSError as error:\n        raise CheckpointError",
        "test_everything_is_synced_before_it_gets_its_name",
    ),
    Break(
        "wrong position offset",
        "self.positions(places_T + self.position_offset)",
        "self.positions(places_T + self.position_offset - 1)",
        "test_logits_are_equal",
    ),
    Break(
        "a rank is dropped from the loss count",
        "torch.tensor([int(stop), loss, *counts], device=self.device)",
        "torch.tensor([int(stop), loss, *(n * (not dist.get_rank()) for n in counts)])",
        "test_two_ranks_agree_on_count_and_stop",
    ),
    Break(
        "stale kernel cache",
        "digest.update(path.read_bytes())",
        "digest.update(path.name.encode())",
        "test_a_change_in_any_folder_moves_the_kernels",
    ),
    Break(
        "no trust ratio",
        "return min(max(weight_norm / update_norm, self.least_ratio), self.largest_ratio)",
        "return 1.0",
        "test_trust_ratio",
    ),
    Break(
        "bias correction counts one update too many",
        'updates=updates if self.corrects == "moments"',
        'updates=updates + 1 if self.corrects == "moments"',
        "test_traps_27_equals_the_formula_on_one_process",
    ),
    Break(
        "dropout repeats at every step",
        "noise_seed(self.run.seed, self.progress.step, self.cluster.rank, batch.micro_batch)",
        "noise_seed(self.run.seed, 0, self.cluster.rank, batch.micro_batch)",
        "test_the_noise_of_each_micro_batch_is_its_own",
    ),
    Break(
        "stored signatures have their words in another order",
        "*(table[name] for name in _WORDS)]",
        "*(table[name] for name in _WORDS[::-1])]",
        "test_recall_is_that_of_one_run",
    ),
]


def main() -> None:
    chosen = [b for b in BREAKS if not sys.argv[1:] or any(word in b.name for word in sys.argv[1:])]
    wrong = 0
    for broken in chosen:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "checkout"
            shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__"))
            (source,) = (
                path
                for package in ("pipeline", "model")
                for path in (copy / package).rglob("*.py")
                if broken.old in path.read_text()
            )
            assert source.read_text().count(broken.old) == 1, source
            passes = run_test(copy, broken.test)
            source.write_text(source.read_text().replace(broken.old, broken.new))
            fails = run_test(copy, broken.test)
            result = {(0, 1): "is noticed by"}.get((passes, fails), "is NOT noticed by")
            wrong += "NOT" in result
            print(f"{broken.name} ({source.relative_to(copy)}) {result} {broken.test}", flush=True)
    sys.exit(wrong)


def run_test(checkout: Path, function: str) -> int:
    """pytest's exit code for a test of a checkout, by name."""
    files = [
        path
        for path in (checkout / "tests").rglob("test_*.py")
        if f"\ndef {function}(" in path.read_text()
    ]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *files, "-k", function, "-p", "no:cacheprovider"],
        cwd=checkout, env=os.environ | {"PYTHONPATH": str(checkout)}, capture_output=True,
        check=False,
    ).returncode  # fmt: skip


if __name__ == "__main__":
    main()

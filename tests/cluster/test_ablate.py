"""An ablation as a job array gives the table of one process."""

import json
import sys
from pathlib import Path

from tests.cluster.slurm import Cluster
from tests.launching.process import run
from tests.pipeline.experiments.small_ablation import (
    environment,
    without_times,
    words,
    write_corpus,
)

BATCH_FILE = "slurm/ablate.sbatch"
SMALL = ("--cpus-per-task=1", "--mem=1G", "--gres=none", "--time=60")
ONE_SEED = ("--seeds", "1")
ELEMENTS = 3
"""Two arms with one seed, and one more of the baseline."""


def test_runs_as_an_array(
    cluster: Cluster, sample_text: list[str], tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """All at once: the first prepares, the others wait for it, the last to finish writes."""
    corpus = write_corpus(tmp_path / "text.jsonl", sample_text)
    output, alone = tmp_path / "array", tmp_path / "alone"
    arguments = [*words(corpus, tiny_tokenizer, output)[:-2], *ONE_SEED]
    first = cluster.submit(
        BATCH_FILE, f"--array=0-{ELEMENTS - 1}", *SMALL, TENFOLD_VENV=sys.prefix,
        TENFOLD_ABLATION=str(output), TENFOLD_ABLATE_ARGS=" ".join(arguments),
        TENFOLD_LOCAL=str(tmp_path / "local"), TENFOLD_DOCTOR="off",
    )  # fmt: skip
    given = words(corpus, tiny_tokenizer, alone, *ONE_SEED)
    command = [sys.executable, "-m", "pipeline.ablate", *given]
    local = run(command, env=cluster.environment() | environment())
    elements = [first.element(number) for number in range(ELEMENTS)]
    assert [element.end() for element in elements] == ["COMPLETED"] * ELEMENTS, first.log()
    assert local.returncode == 0, local.stderr
    tables = [
        without_times(json.loads((folder / "ablation.json").read_text()))
        for folder in (output, alone)
    ]
    assert tables[0] == tables[1]

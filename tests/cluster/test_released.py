"""A folder of transformers as the recipe of the batch files: checked, prepared for, continued."""

import json
import sys
from pathlib import Path

from pipeline.data.tokenizers.vocabulary import Vocabulary
from tests.cluster.slurm import ONE_HOST, ROOT, Cluster, Job
from tests.cluster.training import last_step
from tests.pipeline.released.models import save_model

FEW_STEPS = (
    "--new heads --set steps=4 --set schedule.warmup_steps=1 --set batch.sequences=16 "
    "--set batch.per_device=8 --set checkpoint.every=4 --set validation.every=4"
)


def test_a_folder_is_prepared_for_and_continued(
    cluster: Cluster, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    """Named relative to where sbatch and pipeline.sh are called, which is not the checkout.

    It has the name of a recipe with a batch file, which its run and its shards must not have.
    """
    save_model("RobertaModel", tmp_path / "roberta_base", tiny_vocabulary)  # without a head
    root, prepare, train = tmp_path / "root", "--mem-per-cpu=1G", "--nodes=2 --gres=gpu:1 --mem=1G"
    environment = {
        "TENFOLD_VENV": sys.prefix, "TENFOLD_CORPUS": "sample", "TENFOLD_ROOT": str(root),
        "TENFOLD_LOCAL": str(tmp_path / "local"), "TENFOLD_ARGS": FEW_STEPS,
    } | ONE_HOST  # fmt: skip

    def call(*command: object, **more: str) -> str:
        words = [word for part in command for word in str(part).split()]
        result = cluster.run("env", f"--chdir={tmp_path}", *words, **environment | more)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    chain = call(
        f"{ROOT}/slurm/pipeline.sh --check ./roberta_base --prepare --ntasks-per-node=1", prepare,
        "--train --ntasks-per-node=1", train,
    )  # fmt: skip
    assert chain.count("ok ") == 8, chain
    for name, options in (("prepare", prepare), ("train", train)):
        number = call(
            f"sbatch --parsable --output={cluster.logs}/%x-%j.log --ntasks-per-node=1",
            f"--cpus-per-task=1 {options} {ROOT}/slurm/{name}.sbatch",
            TENFOLD_HOME=str(ROOT), TENFOLD_RECIPE="./roberta_base",
        )  # fmt: skip
        job = Job(cluster, int(number))
        assert job.end() == "COMPLETED", job.log()
    (shards,) = (root / "shards").iterdir()
    assert shards.name.startswith("sample-roberta_base-continued-")
    run = root / "runs" / "roberta_base-continued"
    record = json.loads((run / "run.json").read_text())
    assert record["initial_weights"]["folder"] == "roberta_base"
    assert record["run"]["name"] == "roberta_base-continued" and last_step(run) == 4

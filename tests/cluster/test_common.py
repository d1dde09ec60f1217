"""The parts of common.sh that no job on two small nodes covers: containers, long times."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.cluster.shell import bash
from tests.cluster.slurm import ROOT
from tests.cluster.training import STEPS, Runs, last_step

APPTAINER = """#!/bin/sh
# Stands in for apptainer: runs the command here, with the code that an image would bring.
echo "$@" >> {record}
while [ "${{1%.sif}}" = "$1" ]; do shift; done
shift
[ -z "$PYTHONPATH" ] || echo "PYTHONPATH=$PYTHONPATH hides the image's code"
[ "$1" != python ] || {{ shift; set -- {python} "$@"; }}
PYTHONPATH={root} exec "$@"
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0:09", 9),
        ("20:00", 1200),
        ("1:02:08", 3728),
        ("2-00:00:10", 172810),
        ("UNLIMITED", 86400),
        ("INVALID", 86400),
    ],
)
def test_times_as_slurm_writes_them(text: str, expected: int) -> None:
    assert bash(f"seconds {text}") == str(expected)


def test_a_step_has_the_cpus_of_its_job() -> None:
    script = "set_cores; echo $SRUN_CPUS_PER_TASK $OMP_NUM_THREADS"
    assert bash(script, SLURM_CPUS_PER_TASK="8", OMP_NUM_THREADS="") == "8 8"
    assert bash(script, OMP_NUM_THREADS="2") == "1 2"


def test_inputs_are_split_expanded_and_said_to_be_whose(tmp_path: Path) -> None:
    for name in ("a.warc", "b.warc", "year=2020"):
        (tmp_path / name).touch()
    script = f'cd {tmp_path}; split_inputs; printf "%s\\n" "${{data[@]}}" -- "${{inputs[@]}}"'
    given = "cc-news=*.warc wikipedia=dump/x.bz2 year=2020 none*.txt stories=s3://b/*.jsonl"
    paths = [f"{tmp_path}/{name}" for name in ("a.warc", "b.warc", "dump/x.bz2", "year=2020")]
    paths.append(f"{tmp_path}/none*.txt")
    members = ("cc-news=", "cc-news=", "wikipedia=", "", "")
    assert bash(script, TENFOLD_INPUT=given).split("\n") == [
        *paths, "--", *map("".join, zip(members, paths)), "stories=s3://b/*.jsonl",
    ]  # fmt: skip
    assert bash('split_inputs; echo "${#data[@]} ${#inputs[@]}"', TENFOLD_INPUT="") == "0 0"


def test_folders_that_an_ablation_scores_are_mounted(tmp_path: Path) -> None:
    given = (
        "roberta/masking --finetune sst2=glue/SST-2 --corpus wikipedia --grammar /pairs/blimp "
        "--finetune=rte=/glue/RTE --seeds 5 --grammar=blimp"
    )
    script = f'cd {tmp_path}; data=(/out); add_scored {given}; printf "%s\\n" "${{data[@]}}"'
    folders = ["/out", f"{tmp_path}/glue/SST-2", "/pairs/blimp", "/glue/RTE", f"{tmp_path}/blimp"]
    assert bash(script).splitlines() == folders


def test_pyxis_gets_every_directory_at_its_own_path(tmp_path: Path) -> None:
    script = (
        "read_site; data=(/shards/a /shards/b); choose_python; "
        'printf "%s\\n" "${container[@]}" "${python[@]}" "path ${PYTHONPATH:-unset}"'
    )
    printed = bash(
        script, TENFOLD_IMAGE="registry#tenfold", TENFOLD_VENV="", TENFOLD_CONTAINER="pyxis",
        TENFOLD_RUN=f"{tmp_path}/run", TENFOLD_LOCAL=f"{tmp_path}/local", TENFOLD_RECIPE="x",
        TENFOLD_MOUNTS="/my scratch", PYTHONPATH="/elsewhere",
    )  # fmt: skip
    directories = [
        ROOT,
        tmp_path / "local",
        tmp_path / "run",
        "/shards/a",
        "/shards/b",
        "/my scratch",
    ]
    assert printed.splitlines() == [
        "--container-image=registry#tenfold",
        "--no-container-mount-home",
        f"--container-workdir={ROOT}",
        "--container-mounts=" + ",".join(f"{path}:{path}" for path in directories),
        "python",
        "path unset",
    ]


def test_apptainer_runs_every_rank(runs: Runs, tmp_path: Path) -> None:
    """With a stand-in: Apptainer is in no Debian release that we test on."""
    programs, record = tmp_path / "bin", tmp_path / "record"
    programs.mkdir()
    stand_in = programs / "apptainer"
    stand_in.write_text(APPTAINER.format(record=record, python=sys.executable, root=ROOT))
    stand_in.chmod(0o755)
    image = tmp_path / "tenfold.sif"
    image.touch()
    run = tmp_path / "run"
    job = runs.submit(
        run, TENFOLD_VENV="", TENFOLD_IMAGE=str(image), PATH=f"{programs}:{os.environ['PATH']}"
    )
    assert job.end() == "COMPLETED", job.log()
    assert last_step(run) == STEPS and "hides the image's code" not in job.log()
    commands = [line for line in record.read_text().splitlines() if line.startswith("exec ")]
    bound = f"{ROOT},{runs.folder}/local,{run},{runs.shards}"
    assert all(line.startswith(f"exec --nv --bind {bound} {image} python ") for line in commands)
    modules = [line.partition(" -m pipeline.")[2].partition(" ")[0] for line in commands]
    assert modules == ["", "doctor", "doctor", "train", "train"]


def test_a_file_in_run_runs_no_command(tmp_path: Path) -> None:
    """Whoever may write RUN/.restarts-JOB must not run commands as the user of the job."""
    planted = tmp_path / "planted"
    for count in (f"RANDOM[$(touch {planted})]", "08", "-1", "1 2", "x"):
        (tmp_path / ".restarts-7").write_text(f"none {count}\n")
        script = f"TENFOLD_RUN={tmp_path}; job_field() {{ :; }}; begin_life; cat $life"
        printed = bash(script, SLURM_JOB_ID="7", SLURM_RESTART_COUNT="2")
        assert printed.splitlines()[-1] == "none 0" and not planted.exists()


def test_ports_are_two_numbers() -> None:
    script = "free_port && echo found || echo none"
    for ports in ("RANDOM[0]-2", "1-x", "", "010-020"):
        assert (
            bash(script, TENFOLD_PORTS=ports, SLURM_JOB_ID="7", MASTER_ADDR="localhost") == "none"
        )
    found = bash(script, TENFOLD_PORTS="20100-20900", SLURM_JOB_ID="7", MASTER_ADDR="localhost")
    assert found.splitlines()[-1] == "found"

"""The parts of common.sh that no job on two small nodes covers: containers, long times."""

import os
import shlex
import sys
from pathlib import Path

from pipeline.recipes import RECIPES
from pipeline.released.continued import run_name
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


def test_times_as_slurm_writes_them() -> None:
    times = "0:09 20:00 1:02:08 2-00:00:10 UNLIMITED INVALID"
    said = bash(f"for time in {times}; do seconds $time; done").split()
    assert said == ["9", "1200", "3728", "172810", "86400", "86400"]


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
    ours = (ROOT, tmp_path / "local", tmp_path / "run")
    directories = [*ours, "/shards/a", "/shards/b", "/my scratch"]
    assert printed.splitlines() == [
        "--container-image=registry#tenfold",
        "--no-container-mount-home",
        f"--container-workdir={ROOT}",
        "--container-mounts=" + ",".join(f"{path}:{path}" for path in directories),
        "python",
        "path unset",
    ]


def test_a_model_is_mounted(tmp_path: Path) -> None:
    """Its folder, or all that came from the Hub, which fetches into them."""
    (tmp_path / "given").mkdir()
    for recipe, name, folder in (
        ("./given", "given", tmp_path / "given"),
        ("hf:me/base@v1", "base", tmp_path / "root" / "models"),
    ):
        script = f"cd {tmp_path}; read_site; data=(/shards); choose_python; echo ${{container[-1]}}"
        printed = bash(
            script, TENFOLD_IMAGE="registry#tenfold", TENFOLD_VENV="", TENFOLD_CONTAINER="pyxis",
            TENFOLD_ROOT="root", TENFOLD_LOCAL=f"{tmp_path}/local", TENFOLD_RECIPE=recipe,
        )  # fmt: skip
        run = tmp_path / "root" / "runs" / name
        assert folder.is_dir()
        assert printed.endswith(f",{run}:{run},/shards:/shards,{folder}:{folder}")


def test_names_are_those_that_commands_give_to_runs() -> None:
    """In any locale; as `_read_named` in pipeline/released/choice.py calls run_name."""
    names = [
        "roberta-base", "my model (2)", "größe", "größe–2", " .-x-. ", "a--b", "a - b", "---", "語",
        "-n", "two\nlines", "x_1.5", "roberta.roberta_base", "ROBERTA_BASE", "bert_base",
    ]  # fmt: skip
    given = {f"/models/{name}": name for name in names}
    given |= {f"hf:me/{name}{revision}": name for name in names[:3] for revision in ("", "@v1/x")}
    script = f'for r in {shlex.join([*given, "bert_base", ""])}; do run_name "$r"; done; echo end'
    for locale in ("C", "C.UTF-8"):
        printed = bash(script, LC_ALL=locale).split("\n")
        assert printed == [*map(run_name, given.values()), "bert_base", "", "end"]
    listed = (ROOT / "pipeline" / "recipes" / "__init__.py").read_text()
    assert all(f".{recipe}," in listed for recipe in RECIPES)


def test_a_model_has_shards_of_its_own(tmp_path: Path) -> None:
    """Also beside those of a recipe that its folder has the name of."""
    for name in ("news-roberta_base-01ab", "news-roberta_base-continued-23cd", "news-base-45ef"):
        (tmp_path / "shards" / name).mkdir(parents=True)
        (tmp_path / "shards" / name / "manifest.json").touch()
    (tmp_path / "roberta_base").mkdir()
    (tmp_path / "link").symlink_to("roberta_base")
    script = 'read_site; choose_data; echo "${data[@]##*/} ${TENFOLD_RUN##*/}"'
    for recipe, shards, run in (
        ("roberta_base", "roberta_base-01ab", "roberta_base"),
        ("./roberta_base/", "roberta_base-continued-23cd", "roberta_base-continued"),
        (f"{tmp_path}/link", "roberta_base-continued-23cd", "roberta_base-continued"),
        ("hf:me/base", "base-45ef", "base"),
    ):
        printed = bash(
            script, TENFOLD_RECIPE=recipe, TENFOLD_ROOT=str(tmp_path), TENFOLD_RUN="",
            TENFOLD_DATA="", SLURM_SUBMIT_DIR=str(tmp_path),
        )  # fmt: skip
        assert printed == f"news-{shards} {run}"


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

"""Settings: the environment of sbatch, then site.env, then the batch file's own."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cluster.shell import bash
from tests.cluster.slurm import ROOT, Cluster, Job
from tests.cluster.stand_ins import StandIns
from tests.launching.process import quick_python

ELEMENT = {"SLURM_ARRAY_TASK_ID": "2"}
SAYS_WHO_IT_IS = """#!/bin/sh
shift
echo "$1: $RANK of $WORLD_SIZE, $MASTER_ADDR, $PYTHONPATH, $NCCL_IB_HCA"
"""
FORMS = {"a default": ': "${{{key}:={value}}}"', "an assignment": "{key}='{value}'"}
"""How a line of site.env can set a key."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a file that `a*` matches, and shards."""
    (tmp_path / "a1").touch()
    shards = tmp_path / "data" / "shards" / "news-bert_base-0123"
    shards.mkdir(parents=True)
    (shards / "manifest.json").touch()
    return tmp_path


@pytest.fixture
def stand_ins(folder: Path) -> StandIns:
    """Programs that record, in that folder."""
    return StandIns.write(folder)


def settings(folder: Path) -> dict[str, str]:
    """A value for every kind of job, with a `*` in the arguments."""
    return {
        "TENFOLD_RECIPE": "bert_base", "TENFOLD_ROOT": str(folder / "data"),
        "TENFOLD_ARGS": "--more a*", "TENFOLD_DOCTOR": "off", "TENFOLD_MPI": "pmix",
        "TENFOLD_CORPUS": "news", "TENFOLD_INPUT": f"{folder}/a*",
        "TENFOLD_PREPARE_ARGS": "--more a*",
        "TENFOLD_MODEL": "/model", "TENFOLD_TASKS": "sst2=/sst a*=/any", "TENFOLD_SCORES": "/tmp",
        "TENFOLD_FINETUNE_ARGS": "--seeds 2 --more a*",
        "TENFOLD_ABLATION": str(folder / "ablation"), "TENFOLD_ABLATE_ARGS": "masking --more a*",
    }  # fmt: skip


def expected(script: str, folder: Path) -> list[str]:
    """The arguments that come after `-m pipeline.COMMAND`."""
    data, more = folder / "data", ["--more", "a*"]
    named = script.removesuffix(".sbatch")  # such a file trains the recipe of its name
    recipe = named if named in ("roberta_base", "roberta_large") else "bert_base"
    run = str(data / "runs" / recipe)
    training = [recipe, "--data", f"{data}/shards/news-bert_base-0123", "--output", run]
    finetune = ["/model", "--task", "a*", "--data", "/any", "--output", "/tmp/a*", "--part", "1/2"]
    prepare = ["--corpus", "news", "--recipe", "bert_base", "--input", f"{folder}/a1"]
    return {
        "prepare.sbatch": [*prepare, *more],
        "export.sbatch": [run, "--output", f"{run}-export"],
        "finetune.sbatch": [*finetune, "--seeds", "2", *more],
        "ablate.sbatch": ["masking", *more, "--output", f"{folder}/ablation", "--task", "2"],
    }.get(script, [*training, *more])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "script", [path.name for path in sorted((ROOT / "slurm").glob("*.sbatch"))]
)
def test_site_env_prevails_over_the_batch_file(script: str, form: str, stand_ins: StandIns) -> None:
    """And no `*` in arguments becomes the name of a file in the current directory."""
    folder = stand_ins.folder
    chosen = settings(folder)
    stand_ins.site(*(FORMS[form].format(key=key, value=value) for key, value in chosen.items()))
    element = ELEMENT if script in ("finetune.sbatch", "ablate.sbatch") else {}
    started = stand_ins.run(script, **element)
    assert started[started.index("-m") + 2 :] == expected(script, folder)
    assert script != "prepare.sbatch" or "--mpi=pmix" in started


@pytest.mark.parametrize("form", FORMS)
def test_the_environment_prevails_over_site_env(form: str, tmp_path: Path) -> None:
    """Unless it is empty. What leads to site.env comes from the environment only."""
    line = FORMS[form].format
    chosen = {"RECIPE": "of_site", "ROOT": "/site", "PORTS": "1-2", "HOME": "/elsewhere"}
    site = tmp_path / "site.env"
    lines = (line(key=f"TENFOLD_{key}", value=value) for key, value in chosen.items())
    site.write_text((ROOT / "slurm" / "site.env").read_text() + "\n".join(lines) + "\n")
    script = 'read_site of_file; printf "%s\\n" "$TENFOLD_RECIPE" "$TENFOLD_ROOT" "$TENFOLD_RUN" '
    script += '"$TENFOLD_PORTS" "$TENFOLD_HOME"; printenv TENFOLD_RECIPE'
    given = {"TENFOLD_RECIPE": "$(x) 'of' me", "TENFOLD_ROOT": "", "TENFOLD_PORTS": "3-4"}
    printed = bash(script, TENFOLD_SITE_ENV=str(site), TENFOLD_RUN="", **given).splitlines()
    run = "/site/runs/$(x) 'of' me"
    recipe = given["TENFOLD_RECIPE"]
    assert printed == [recipe, "/site", run, "3-4", str(ROOT), recipe]


@pytest.mark.parametrize(
    "script", ["prepare.sbatch", "train.sbatch", "finetune.sbatch", "ablate.sbatch"]
)
def test_single_quotes_keep_an_argument_with_spaces(script: str, stand_ins: StandIns) -> None:
    """As a log to W&B is asked for; a JSON list without spaces needs no quotes."""
    stand_ins.site()
    chosen = settings(stand_ins.folder)
    chosen |= ELEMENT if script in ("finetune.sbatch", "ablate.sbatch") else {}
    given = """ --set 'logging.to=["tensorboard", "wandb"]' --set logging.to=["a","b"] """
    names = [key for key in chosen if key.endswith("_ARGS")]
    started = stand_ins.run(script, **chosen | {key: chosen[key] + given for key in names})
    first = started.index('logging.to=["tensorboard", "wandb"]')
    assert started[first - 1 : first + 3] == [
        "--set", 'logging.to=["tensorboard", "wandb"]', "--set", 'logging.to=["a","b"]',
    ]  # fmt: skip
    errors = stand_ins.fail(script, **chosen | dict.fromkeys(names, "--seeds 2 --set 'x"))
    assert errors.startswith("error: TENFOLD_") and "a single quote is not closed: 'x" in errors
    assert errors.count("\n") == 1


def test_a_backslash_before_an_apostrophe_keeps_it() -> None:
    script = (
        """split_words TENFOLD_ARGS; for word in "${words[@]}"; do printf '%s|' "$word"; done"""
    )
    for given, expected in (
        (r"--name 'Zoë\'s run' it\'s 'it'\''s'", "--name|Zoë's run|it's|it's|"),
        (r"a=\d+ b=[\"c\"] \'", r"a=\d+|b=[\"c\"]|'|"),
        ("", ""),
    ):
        for locale in ("C", "C.UTF-8"):
            assert bash(script, TENFOLD_ARGS=given, LC_ALL=locale) == expected


def test_a_recipe_of_the_batch_file_is_the_last_choice() -> None:
    script = "read_site {}; echo $TENFOLD_RECIPE $TENFOLD_RUN"
    chosen = {"TENFOLD_ROOT": "/data", "TENFOLD_RUN": "", "TENFOLD_RECIPE": ""}
    assert bash(script.format("tiny"), **chosen) == "tiny /data/runs/tiny"
    assert bash(script.format("tiny"), **chosen | {"TENFOLD_RECIPE": "mine"}).startswith("mine ")


@pytest.mark.parametrize("script", ["prepare.sbatch", "train.sbatch", "roberta_base.sbatch"])
def test_a_folder_is_found_where_sbatch_was_called(script: str, stand_ins: StandIns) -> None:
    """Wherever the job runs; every command gets its whole path."""
    folder = stand_ins.folder
    (folder / "login" / "model").mkdir(parents=True)
    stand_ins.site()
    place = {"TENFOLD_HOME": str(ROOT), "SLURM_SUBMIT_DIR": f"{folder}/login"}
    chosen = settings(folder) | {"TENFOLD_RECIPE": "./model", "TENFOLD_DOCTOR": "on"}
    started = stand_ins.run(script, **place | chosen)
    model = f"{folder}/login/model"
    calls = [call.split("\n") for call in (folder / "record").read_text().split("\n\n")]
    modules = [call[call.index("-m") + 1] for call in calls if "-m" in call]
    work = "prepare" if script == "prepare.sbatch" else "train"
    assert modules == ["pipeline.doctor", f"pipeline.{work}"]
    if work == "prepare":
        assert f"--recipe\n{model}" in "\n".join(started)
        return
    (doctor,) = (call for call in calls if "pipeline.doctor" in call)
    assert doctor[doctor.index("--recipe") + 1] == model
    words = started[started.index("-m") + 2 :]
    assert words[0] == model and f"{folder}/data/runs/model" in words
    assert words[-2:] == ["--more", "a*"]


@pytest.mark.parametrize("script", ["prepare.sbatch", "train.sbatch", "export.sbatch"])
def test_a_folder_that_does_not_exist_is_one_line(script: str, stand_ins: StandIns) -> None:
    stand_ins.site()
    errors = stand_ins.fail(script, **settings(stand_ins.folder) | {"TENFOLD_RECIPE": "./none"})
    assert errors.startswith(f"error: recipe ./none: no folder {ROOT}/none; name one with")
    assert errors.count("\n") == 1 and not (stand_ins.folder / "record").exists()


def test_site_env_may_expand_names_of_files(tmp_path: Path) -> None:
    """As `module` does; what follows may not, but for shards and inputs."""
    (tmp_path / "a1").touch()
    site = tmp_path / "site.env"
    lines = f"\nTENFOLD_MOUNTS=$(echo {tmp_path}/a*)\nTENFOLD_DATA='{tmp_path}/n*'\n"
    site.write_text((ROOT / "slurm" / "site.env").read_text() + lines)
    (tmp_path / "n1").mkdir()
    (tmp_path / "n1" / "manifest.json").touch()
    script = f"cd {tmp_path}; echo a*; read_site; choose_data; echo $TENFOLD_MOUNTS ${{data[*]}} a*"
    printed = bash(script, TENFOLD_SITE_ENV=str(site), TENFOLD_MOUNTS="", TENFOLD_DATA="")
    assert printed == f"a*\n{tmp_path}/a1 {tmp_path}/n1 a*"


@pytest.mark.parametrize(
    ("check", "last"), [("check_train", ["--more", "py*"]), ("check_prepare", ["py*", "--dry-run"])]
)
def test_arguments_are_checked_as_they_are_used(
    check: str, last: list[str], stand_ins: StandIns
) -> None:
    """pipeline.sh --check, in the checkout, where `py*` matches."""
    chosen = settings(stand_ins.folder) | {"TENFOLD_VENV": str(stand_ins.folder)}
    chosen |= {"TENFOLD_ARGS": "--more py*", "TENFOLD_PREPARE_ARGS": "--more py*"}
    bash(f'. "$TENFOLD_HOME/slurm/check.sh"; cd "$TENFOLD_HOME"; read_site; {check}', **chosen)
    record = (stand_ins.folder / "record").read_text()
    assert record.split("\n\n")[-1].splitlines()[-2:] == last


@pytest.mark.skipif(find_spec("wandb") is not None, reason="wandb is installed")
def test_a_board_without_its_package_is_found(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(quick_python())
    chosen = {"TENFOLD_VENV": str(tmp_path), "TENFOLD_RECIPE": "roberta_tiny"}
    chosen |= {"TENFOLD_ROOT": str(tmp_path), "TENFOLD_ARGS": '--set logging.to=["wandb"]'}
    printed = bash(
        '. "$TENFOLD_HOME/slurm/check.sh"; read_site; (check_train) 2>&1; echo $?', **chosen
    )
    assert "error: logging.to=['wandb'] needs the wandb package" in printed
    assert printed.endswith("\n2")


def test_an_unknown_setting_in_site_env_is_found(tmp_path: Path) -> None:
    """Also in the checkout's own, where its name does not make it known."""
    for name in ("common.sh", "recipe.sh", "check.sh", "restarts.sh", "faults.sh"):
        (tmp_path / "slurm").mkdir(exist_ok=True)
        (tmp_path / "slurm" / name).write_text((ROOT / "slurm" / name).read_text())
    (tmp_path / "pipeline").symlink_to(ROOT / "pipeline")
    text = (ROOT / "slurm" / "site.env").read_text()
    script = '. "$TENFOLD_HOME/slurm/check.sh"; unset "${!TENFOLD_TEST_@}"; read_site; '
    script += "(check_names) 2>&1; echo $?"
    for line, end in (("", "0"), ("TENFOLD_CORPOS=x\n", "unknown setting TENFOLD_CORPOS;")):
        (tmp_path / "slurm" / "site.env").write_text(f"{text}\n{line}")
        printed = bash(script, TENFOLD_HOME=str(tmp_path), TENFOLD_SITE_ENV="")
        assert end in printed, printed


def test_steps_get_the_environment_whatever_sbatch_was_told(tmp_path: Path) -> None:
    """Slurm sets SLURM_EXPORT_ENV from --export, and srun passes on what it names."""
    assert bash("printenv SRUN_EXPORT_ENV", SLURM_EXPORT_ENV="NONE") == "ALL"
    script = "read_site; echo read"
    for told, lost in (("NONE", True), ("TENFOLD_RECIPE=x", True), ("ALL,A=1", False)):
        printed = bash(script, SLURM_EXPORT_ENV=told).splitlines()
        assert len(printed) == 1 + lost and printed[-1] == "read"
        assert not lost or "kept settings in sbatch's environment from this job" in printed[0]


def test_apptainer_passes_the_environment_on(tmp_path: Path) -> None:
    (tmp_path / "x.sif").touch()
    script = "read_site; data=(/shards); choose_container; echo ${APPTAINER_CLEANENV:-passed}"
    printed = bash(
        script, TENFOLD_IMAGE=f"{tmp_path}/x.sif", TENFOLD_CONTAINER="apptainer",
        TENFOLD_RUN=f"{tmp_path}/run", TENFOLD_LOCAL=f"{tmp_path}/local", APPTAINER_CLEANENV="1",
    )  # fmt: skip
    assert printed == "passed"


def test_ranks_know_each_other_at_a_site_that_passes_no_environment(
    cluster: Cluster, folder: Path
) -> None:
    """SBATCH_EXPORT=NONE: the job has site.env alone, and passes on what it makes of it."""
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.write_text(SAYS_WHO_IT_IS)
    python.chmod(0o755)
    checkout = folder / "checkout"
    shutil.copytree(ROOT / "slurm", checkout / "slurm")
    chosen = settings(folder) | {"TENFOLD_DOCTOR": "on", "NCCL_IB_HCA": "mlx5"}
    chosen |= {"TENFOLD_VENV": str(folder), "TENFOLD_LOCAL": str(folder / "local")}
    with (checkout / "slurm" / "site.env").open("a") as site:
        site.writelines(f"{key}='{value}'\n" for key, value in chosen.items())
    options = "--nodes=2 --ntasks-per-node=1 --cpus-per-task=1 --mem=1G --gres=gpu:1"
    result = cluster.run(
        "sh", "-c", f"cd {checkout} && sbatch --parsable --output={cluster.logs}/%x-%j.log "
        f"{options} slurm/train.sbatch", SBATCH_EXPORT="NONE", TENFOLD_RECIPE="lost",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    job = Job(cluster, int(result.stdout))
    assert job.end() == "COMPLETED", job.log()
    lines = job.log().splitlines()
    assert "kept settings in sbatch's environment from this job" in lines[0]
    for command in ("pipeline.doctor", "pipeline.train"):
        for rank in (0, 1):
            assert f"{command}: {rank} of 2, node01, {checkout}, mlx5" in lines, job.log()

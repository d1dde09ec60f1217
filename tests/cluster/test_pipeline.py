"""pipeline.sh gives each job its own resources; run with an sbatch that only writes down."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.slurm import ROOT

RECORDS = """#!/bin/sh
echo "$*" >>{record}
echo "${{SBATCH_EXPORT:-}} ${{TENFOLD_RECIPE:-}}" >>{record}.environment
wc -l <{record}
"""


def pipeline(
    folder: Path, *words: str, cwd: Path = ROOT, **environment: str
) -> tuple[int, str, list[str]]:
    """Exit code, errors, and the arguments of each sbatch."""
    record = folder / "record"
    (folder / "sbatch").write_text(RECORDS.format(record=record))
    (folder / "sbatch").chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TENFOLD_", "SLURM_"))}
    result = subprocess.run(
        [ROOT / "slurm" / "pipeline.sh", *words], capture_output=True, text=True, check=False,
        env=kept | {
            "PATH": f"{folder}:{kept['PATH']}", "TENFOLD_VENV": sys.prefix,
            "TENFOLD_CORPUS": "cc-news",
        } | environment,
        cwd=cwd,
    )  # fmt: skip
    calls = record.read_text().splitlines() if record.exists() else []
    return result.returncode, result.stderr, calls


def test_each_job_has_its_own_resources(tmp_path: Path) -> None:
    """The training has a recipe's own file, if there is one."""
    words = "bert_tiny -p gpu --account=me --train --nodes=4 --gres=gpu:4 --prepare --nodes=2"
    code, errors, calls = pipeline(tmp_path, *words.split(), "--export", "--mem=8G")
    assert (code, errors) == (0, "")
    after = "--dependency=afterok:{} --kill-on-invalid-dep=yes "
    assert calls == [
        "--parsable -p gpu --account=me --nodes=2 slurm/prepare.sbatch",
        f"--parsable {after.format(1)}-p gpu --account=me --job-name=bert_tiny --nodes=4 "
        "--gres=gpu:4 slurm/train.sbatch",
        f"--parsable {after.format(2)}-p gpu --account=me --mem=8G slurm/export.sbatch",
    ]
    _, _, calls = pipeline(tmp_path, "roberta_base")
    assert calls[4].endswith("--job-name=roberta_base slurm/roberta_base.sbatch")


def test_every_job_gets_the_folder_that_the_user_means(tmp_path: Path) -> None:
    """Relative to where they are, though jobs are submitted from the checkout; never with the file
    of a recipe of that name."""
    folder = tmp_path / "models" / "roberta_base"
    folder.mkdir(parents=True)
    code, errors, calls = pipeline(
        tmp_path, "./roberta_base", cwd=folder.parent, TENFOLD_VENV="", SLURM_SUBMIT_DIR="/"
    )
    assert (code, errors) == (0, "")
    assert calls[1].endswith("--job-name=roberta_base-continued slurm/train.sbatch")
    passed = (tmp_path / "record.environment").read_text().splitlines()
    assert passed == [f"ALL {folder}"] * 3


@pytest.mark.parametrize("site", ["", "NONE", "A=1", "ALL,A=1"])
def test_every_job_gets_the_recipe(site: str, tmp_path: Path) -> None:
    """Whatever a site makes the default of sbatch's --export; also over a recipe in site.env."""
    recipes = tmp_path / "site.env"
    text = (ROOT / "slurm" / "site.env").read_text()
    recipes.write_text(f"{text}\nTENFOLD_RECIPE=bert_base\n")
    words = ("bert_tiny", "--export=ALL,B=2")
    code, errors, calls = pipeline(
        tmp_path, *words, SBATCH_EXPORT=site, TENFOLD_SITE_ENV=str(recipes)
    )
    assert (code, errors) == (0, "") and all(" --export=ALL,B=2 " in call for call in calls)
    passed = (tmp_path / "record.environment").read_text().splitlines()
    assert passed == [f"{site if site.startswith('ALL') else 'ALL'} bert_tiny"] * 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("roberta_base --nodes=4", "--nodes=4 would be for all three jobs; give it after"),
        ("roberta_base -p gpu -N 4", "-N would be for all three jobs"),
        ("roberta_base --time=1:00", "--time=1:00 would be for all three jobs"),
        ("roberta_base --export=NONE", "--export=NONE would keep the settings from the jobs"),
        ("roberta_base --train --export=A", "--export=A would keep the settings from the jobs"),
        ("", "usage: slurm/pipeline.sh [--check] RECIPE"),
        ("--partition=gpu", "name a recipe before --partition=gpu"),
        ("roberta_huge", "unknown recipe 'roberta_huge'"),
        ("./roberta_base", f"recipe ./roberta_base: no folder {ROOT}/roberta_base; name one with"),
        ("./slurm", f"{ROOT}/slurm has no config.json"),
    ],
)
def test_a_mistake_is_one_line_and_submits_nothing(
    words: str, message: str, tmp_path: Path
) -> None:
    code, errors, calls = pipeline(tmp_path, *words.split())
    assert (code, calls) == (2, [])
    assert errors.startswith(f"error: {message}") and errors.count("\n") == 1


def test_what_every_job_needs_is_a_line_before_anything_else(tmp_path: Path) -> None:
    """Nothing is submitted without a corpus, or where there is no Slurm."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "dirname"):
        (programs / name).symlink_to(str(shutil.which(name)))
    for words in (("--check", "roberta_base"), ("roberta_base",)):
        for lacking, said in (
            ({"TENFOLD_CORPUS": ""}, "TENFOLD_CORPUS is not set"),
            ({"PATH": str(programs)}, "no sbatch on PATH"),
        ):
            code, errors, calls = pipeline(tmp_path, *words, **lacking)
            assert (code, errors.count("\n"), calls) == (2, 1, [])
            assert errors.startswith(f"error: {said}; ")


def test_help_is_the_comment_of_the_file(tmp_path: Path) -> None:
    for words in (["--help"], ["-h"], ["roberta_base", "--train", "--help"]):
        result = subprocess.run(
            [ROOT / "slurm" / "pipeline.sh", *words], capture_output=True, text=True, check=False
        )
        assert (result.returncode, result.stderr) == (0, "")
        first, *lines = result.stdout.splitlines()
        assert first.startswith("Submits all jobs at once") and len(lines) > 10
        assert lines[-1].endswith("Prints the three job ids.")


def test_files_that_are_started_by_hand_say_so() -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TENFOLD_", "SLURM_"))}
    folder = ROOT / "slurm"
    for command, said in (
        *(
            (["bash", path], f"submit it: sbatch [OPTIONS] {path}")
            for path in folder.glob("*.sbatch")
        ),
        ([folder / "rank.sh"], "usage: rank.sh"),
        ([folder / "rank.sh", "ranks"], "usage: rank.sh"),
    ):
        result = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=ROOT, env=kept
        )
        assert (result.returncode, result.stdout) == (2, ""), command
        assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
        assert said in result.stderr

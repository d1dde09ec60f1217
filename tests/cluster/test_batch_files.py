"""The files themselves: Slurm accepts them, shellcheck is clean, all keys are documented."""

import re
import subprocess
import sys
from pathlib import Path

from tests.cluster.slurm import ROOT, Cluster

BATCH_FILES = sorted((ROOT / "slurm").glob("*.sbatch"))
SCRIPTS = [path for folder in ("slurm", "tests/cluster") for path in (ROOT / folder).glob("*.sh")]
SHELL = [*SCRIPTS, *BATCH_FILES, ROOT / "slurm" / "site.env"]


def test_slurm_accepts_all_with_gpus_and_without(cluster: Cluster) -> None:
    """With the resources that a file asks for, but no more nodes than there are. GPUs are requested
    by --gres alone, which --gres=none replaces."""
    for path in BATCH_FILES:
        assert not re.search(r"^#SBATCH.*--gpus", path.read_text(), re.M)
        for options in (["--nodes=2"], ["--nodes=1", "--gres=none"]):
            result = cluster.sbatch("--test-only", *options, path)
            assert result.returncode == 0, result.stderr


def test_shellcheck() -> None:
    shellcheck = Path(sys.executable).with_name("shellcheck")
    command = [shellcheck, "--external-sources", *(path.relative_to(ROOT) for path in SHELL)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_site_env_is_read_first() -> None:
    """Before any setting but the checkout is used, or site.env would come too late for it."""
    for path in BATCH_FILES:
        after = path.read_text().partition('. "$TENFOLD_HOME/slurm/common.sh"\n')[2]
        body = re.sub(r"(?ms)^\w+\(\) \{$.*?^\}$|^ *#.*?$", "", after)
        before = re.split(r"(?m)^(?:read_site|train)\b", body)[0]
        assert before != body and not re.search(r"[$]|\(\)", before), (path.name, before)


def test_numbers_are_checked_before_bash_calculates_with_them() -> None:
    """Bash runs commands in subscripts: `RANDOM[$(rm x)]` read from a file is one in `$((...))`."""
    for path in [*SHELL, ROOT / ".ci" / "run"]:
        text = re.sub(r"(?m)(^|\s)#.*$|'[^']*'", "", path.read_text())
        for name in calculated(text):
            values = re.findall(rf"\b{name}=((?:\$\(\(|[^\s;)])*)", text)
            values += re.findall(rf"\(\({name} = (\d+);", text)
            ours = [re.match(r"\d+$|\$\(\(|\$\(seconds$|\$\{#", value) for value in values]
            checks = (
                rf'is_number "\${name}"', rf"check_numbers[\w ]* {name}\b",
                rf"\[\[ \${name} =~ \^\[0-9\]\+\$",
            )  # fmt: skip
            checked = any(re.search(check, text) for check in checks)
            assert checked or (ours and all(ours)), f"{path.name}: {name} is calculated unchecked"


def calculated(text: str) -> set[str]:
    """The variables in what bash calculates, but for `m`, what a pattern of digits matched."""
    found = re.findall(r"\(\((.*?)\)\)", text)
    found += re.findall(r"\$\{\w+\[([^]@*]+)\]", text) + re.findall(r"\b\w+\[([^]@*$ ]+)\]=", text)
    found += re.findall(r"\[\[ (.*?-(?:eq|ne|lt|le|gt|ge) .*?) \]\]", text)
    found += re.findall(r"\blet (.*)", text)
    expressions = " ".join(found)
    return set(re.findall(r"(?<![\w#])[A-Za-z_]\w*", expressions)) - {"m"}


def test_every_setting_is_in_the_readme() -> None:
    """Those that a batch file reads from the environment, and those of site.env."""
    text = "".join(path.read_text() for path in SHELL)
    settings = set(re.findall(r"\bTENFOLD_[A-Z_]+[A-Z]", text)) - {"TENFOLD_SITE_VERSION"}
    readme = (ROOT / "slurm" / "README.md").read_text()
    assert not {key for key in settings if f"`{key}`" not in readme}

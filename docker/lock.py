"""`make lock`: pyproject.toml to the exact versions and hashes that the image installs.

    python docker/lock.py torch==2.13.0 [--upgrade]

Writes beside itself `cuda.lock` and `cpu.lock` (one a flavour, the same versions in both except of
torch and what CUDA brings) and `source.lock` (what has no wheel and is built in the image).
Versions that still satisfy pyproject.toml stay as they are, unless `--upgrade`. uv resolves; the
hashes of torch without CUDA come from the page that has its wheels, $TORCH_WHEELS.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path

FOLDER = Path(__file__).parent
EXTRAS = ("training", "mpi")
ALSO = ("mpich>=4.3",)
"""An MPI for preparing on many nodes: mpi4py brings none, and a container has no site's."""
PYTHON = "3.11"
"""Debian 12's, see the Dockerfile."""
TORCH_WHEELS = "https://download.pytorch.org/whl/cpu/torch/"
SOURCE_ONLY = ("deepspeed",)
HEADER = "# Written by `make lock` from pyproject.toml; do not edit.\n"


def blocks(text: str) -> dict[str, str]:
    """A lock's text by package: the line with the version, its hashes, what needs it."""
    parts = re.split(r"^(?=[A-Za-z0-9])", re.sub(r"^#.*\n", "", text, flags=re.M), flags=re.M)
    return {re.match(r"[\w.-]+", part)[0]: part for part in parts if part.strip()}  # type: ignore[index]


def resolve(torch: str, lock: Path, options: list[str]) -> dict[str, str]:
    """What uv chooses for this torch, as close to what `lock` holds as pyproject.toml allows."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "also.txt").write_text("\n".join((torch, *ALSO)))
        output = Path(folder) / "lock"
        if lock.exists():
            output.write_text(lock.read_text())
        extras = [f"--extra={extra}" for extra in EXTRAS]
        subprocess.run(
            [sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", *extras,
             f"{folder}/also.txt", "--output-file", output, "--generate-hashes", "--python-version",
             PYTHON, "--python-platform", "linux", "--annotation-style", "line", "--no-header",
             "--quiet", *options],
            cwd=FOLDER.parent, check=True,
        )  # fmt: skip
        # the temporary file's path would be another one every time
        return blocks(re.sub(r"-r \S*/also\.txt", "docker/lock.py", output.read_text()))


def torch_hashes(torch: str) -> str:
    """The lines of torch's wheels without CUDA for this Python on Linux."""
    page = os.environ.get("TORCH_WHEELS", TORCH_WHEELS)
    with urllib.request.urlopen(page, timeout=60) as answer:
        links = urllib.parse.unquote(answer.read().decode())
    name = re.escape(torch.replace("==", "-")) + f"-cp{PYTHON.replace('.', '')}-"
    found = re.findall(rf"{name}cp\d+-manylinux\w+\.whl#sha256=([0-9a-f]{{64}})", links)
    if not found:
        raise SystemExit(f"error: {page} has no wheel {torch} for Python {PYTHON}")
    hashes = "".join(f" \\\n    --hash=sha256:{digest}" for digest in sorted(set(found)))
    return f"{torch}{hashes}\n    # its own index, see TORCH_WHEELS in the Dockerfile\n"


def write(name: str, packages: dict[str, str]) -> None:
    """The lock of these packages, by rename."""
    (FOLDER / f".{name}").write_text(HEADER + "".join(packages.values()))
    (FOLDER / f".{name}").rename(FOLDER / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("torch", help="torch==VERSION")
    parser.add_argument("--upgrade", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # one file holds all that is locked now, so that both flavours keep the same versions
        before = Path(folder) / "before"
        before.write_text(
            "".join(
                (FOLDER / f"{name}.lock").read_text()
                for name in ("cuda", "source")
                if (FOLDER / f"{name}.lock").exists()
            )
        )
        upgrade = ["--upgrade"] if given.upgrade else []
        cuda = resolve(given.torch, before, upgrade)
        before.write_text("".join(cuda.values()))
        wheels = ["--find-links", os.environ.get("TORCH_WHEELS", TORCH_WHEELS)]
        cpu = resolve(f"{given.torch}+cpu", before, wheels)
    cpu["torch"] = torch_hashes(f"{given.torch}+cpu")
    write("source.lock", {name: cuda[name] for name in SOURCE_ONLY})
    write("cuda.lock", {name: cuda[name] for name in cuda if name not in SOURCE_ONLY})
    write("cpu.lock", {name: cpu[name] for name in cpu if name not in SOURCE_ONLY})


if __name__ == "__main__":
    main()

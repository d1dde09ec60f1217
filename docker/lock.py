"""`make lock`: pyproject.toml -> the exact versions and hashes that the image installs.

    python docker/lock.py torch==2.13.0 [--upgrade]

Writes `cuda.lock` and `cpu.lock` (one per flavour; only the versions of torch and of CUDA's
packages differ) and `source.lock` (packages without a wheel, which the image builds) next to this
file. Versions that still satisfy pyproject.toml do not change, unless `--upgrade` is given. uv
resolves; the hashes of torch without CUDA come from the page of its wheels, $TORCH_WHEELS.

`.ci/constraints.txt` does the same for the tests: the versions of everything that `make venv`
installs, for every Python and system, so that a new release of a dependency breaks no test and pip
does not backtrack. torch's version is in the Makefile.
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
CONSTRAINTS = FOLDER.parent / ".ci" / "constraints.txt"
EXTRAS = ("training", "mpi")
ALSO = ("mpich>=4.3",)
"""An MPI for preparing on many nodes: mpi4py has none, and a container cannot use the site's."""
PYTHON = "3.11"
"""Debian 12's version, see the Dockerfile."""
TORCH_WHEELS = "https://download.pytorch.org/whl/cpu/torch/"
SOURCE_ONLY = ("deepspeed",)
TORCH_ONLY = re.compile("(torch|triton)=|cuda-|nvidia-")
HEADER = "# Written by `make lock` from pyproject.toml; do not edit.\n"


def blocks(text: str) -> dict[str, str]:
    """A lock's text by package: the line with the version, its hashes, what requires it."""
    parts = re.split(r"^(?=[A-Za-z0-9])", re.sub(r"^#.*\n", "", text, flags=re.M), flags=re.M)
    return {re.match(r"[\w.-]+", part)[0]: part for part in parts if part.strip()}  # type: ignore[index]


def resolve(torch: str, lock: Path, options: list[str]) -> dict[str, str]:
    """uv's choice for this torch, as close to the versions in `lock` as pyproject.toml allows."""
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
        # the temporary file's path differs every time
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


def constraints(torch: str, options: list[str]) -> str:
    """The versions for the tests, any Python and system; without torch and its own dependencies."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "constraints.txt"
        if CONSTRAINTS.exists():
            output.write_text(CONSTRAINTS.read_text())
        (Path(folder) / "torch.txt").write_text(torch)
        subprocess.run(
            [sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", "--extra", "dev",
             "--constraints", f"{folder}/torch.txt", "--output-file", output, "--universal",
             "--no-header", "--no-annotate", "--quiet", *options],
            cwd=FOLDER.parent, check=True,
        )  # fmt: skip
        # a package has two lines if its versions differ between Pythons
        lines = output.read_text().splitlines(keepends=True)
    return "".join(line for line in lines if not TORCH_ONLY.match(line))


def write(file: Path, text: str) -> None:
    """Write a lock, by rename."""
    hidden = file.with_name(f".{file.name}")
    hidden.write_text(HEADER + text)
    hidden.rename(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("torch", help="torch==VERSION")
    parser.add_argument("--upgrade", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # one file with everything locked now, so that both flavours keep the same versions
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
    write(CONSTRAINTS, constraints(given.torch, upgrade))
    cpu["torch"] = torch_hashes(f"{given.torch}+cpu")
    write(FOLDER / "source.lock", "".join(cuda[name] for name in SOURCE_ONLY))
    for name, packages in (("cuda", cuda), ("cpu", cpu)):
        wheels_only = (packages[package] for package in packages if package not in SOURCE_ONLY)
        write(FOLDER / f"{name}.lock", "".join(wheels_only))


if __name__ == "__main__":
    main()

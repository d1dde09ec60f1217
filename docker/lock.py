"""`make lock`: pyproject.toml -> versions and hashes of what the image and `make venv` install.

    python docker/lock.py torch==2.13.0 [--upgrade]

Versions that still satisfy pyproject.toml do not change, unless `--upgrade` is given. uv resolves.

- For the image, next to this file: `cuda.lock` and `cpu.lock`, one per flavour (only the versions
  of torch and of CUDA's packages differ), and `source.lock` (packages without a wheel, which the
  image builds). The base image's digest goes into the Dockerfile, see `base_image.py`.
- For `make venv`, in `.ci`, for every Python and system that we support: `build.lock` (uv and what
  builds packages from source), `packages.lock`, and two builds of torch, `torch-cuda.lock` and
  `torch-cpu.lock`. A package is in one of the first three.

The hashes of torch without CUDA come from the page of its wheels, $TORCH_WHEELS. If that does not
answer, those of the same version stay.
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

import base_image

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent
CI = ROOT / ".ci"
EXTRAS = ("training", "mpi", "gpu")
ALSO = ("mpich>=4.3",)
"""An MPI for preparing on many nodes: mpi4py has none, and a container cannot use the site's."""
BUILD = ("uv", "setuptools>=77", "setuptools-scm")
"""uv installs the rest of `make venv`; setuptools builds us and DeepSpeed, and with setuptools-scm
seqeval, which has no wheel either."""
PYTHON = "3.11"
"""Debian 12's version, see the Dockerfile."""
OLDEST_PYTHON = "3.10"
TORCH_WHEELS = "https://download.pytorch.org/whl/cpu/torch/"
SOURCE_ONLY = ("deepspeed",)
CUDA = re.compile("triton$|cuda-|nvidia-(?!ml-py$)")
"""Packages that torch needs only with CUDA; nvidia-ml-py is Python that finds no GPU there."""
HEADER = "# Written by `make lock` from pyproject.toml; do not edit.\n"


def blocks(text: str) -> dict[str, str]:
    """A lock's text by package: the line with the version, its hashes, what requires it.

    If the version depends on Python or the system, a package's text has one such block for each.
    """
    found: dict[str, str] = {}
    for part in re.split(r"^(?=[A-Za-z0-9])", re.sub(r"^#.*\n", "", text, flags=re.M), flags=re.M):
        if name := re.match(r"[\w.-]+", part):
            found[name[0]] = found.get(name[0], "") + part
    return found


def resolve(wanted: tuple[str, ...], kept: str, *options: str) -> dict[str, str]:
    """uv's choice for these requirements, as close to the versions in `kept` as they allow."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "also.txt").write_text("\n".join(wanted))
        output = Path(folder) / "lock"
        output.write_text(kept)  # uv keeps the versions that its output file has
        subprocess.run(
            [sys.executable, "-m", "uv", "pip", "compile", *options, f"{folder}/also.txt",
             "--output-file", output, "--generate-hashes", "--annotation-style", "line",
             "--no-header", "--quiet", "--system-certs"],
            cwd=ROOT, check=True,
        )  # fmt: skip
        # the temporary file's path differs every time
        return blocks(re.sub(r"-r \S*/also\.txt", "docker/lock.py", output.read_text()))


def image(torch: str, upgrade: list[str]) -> dict[str, str]:
    """Text by package of everything in the image with CUDA."""
    # both, as one resolution: main() takes SOURCE_ONLY out of it afterwards
    kept = "".join(text for name in ("cuda", "source") for text in _read(FOLDER / f"{name}.lock"))
    extras = [f"--extra={extra}" for extra in EXTRAS]
    platform = ("--python-version", PYTHON, "--python-platform", "linux")
    return resolve((torch, *ALSO), kept, "pyproject.toml", *extras, *platform, *upgrade)


def environment(torch: str, upgrade: list[str]) -> dict[str, dict[str, str]]:
    """Text by package of what `make venv` installs, by name of a lock; torch with CUDA."""
    names = ("build", "packages", "torch-cuda")
    kept = "".join(text for name in names for text in _read(CI / f"{name}.lock"))
    everywhere = ("--universal", "--python-version", OLDEST_PYTHON)
    wanted = (torch, *BUILD)
    every = resolve(wanted, kept, "pyproject.toml", "--extra=dev", *everywhere, *upgrade)
    # packages that building needs, at the same versions: uv keeps those in its output file
    build = resolve(BUILD, "".join(every.values()), *everywhere)
    cuda = {name for name in every if name == "torch" or CUDA.match(name)}
    return {
        "build": {name: every[name] for name in every if name in build},
        "packages": {name: every[name] for name in every if name not in cuda | build.keys()},
        "torch-cuda": {name: every[name] for name in every if name in cuda},
    }


def torch_without_cuda(torch: str, kept: str) -> str:
    """The lines of torch's wheels without CUDA, for every Python and system.

    kept: the lines of before, for when the page of the wheels does not answer.
    """
    page = os.environ.get("TORCH_WHEELS", TORCH_WHEELS)
    try:
        with urllib.request.urlopen(page, timeout=60) as answer:
            links = urllib.parse.unquote(answer.read().decode())
    except OSError as error:
        if not kept.startswith(f"{torch} "):
            raise SystemExit(
                f"error: {page} does not answer ({error}), and no lock has hashes of {torch}; "
                "set TORCH_WHEELS to a page that has its wheels"
            ) from error
        print(f"{page} does not answer ({error}): the hashes of {torch} stay", file=sys.stderr)
        return kept
    wheel = re.escape(torch.replace("==", "-")) + r"-cp\d+-[\w.-]+\.whl"
    found = re.findall(rf"\b{wheel}#sha256=([0-9a-f]{{64}})", links)
    if not found:
        raise SystemExit(f"error: {page} has no wheel of {torch}")
    # sorted, so that the lock does not follow the page's order
    hashes = "".join(f" \\\n    --hash=sha256:{digest}" for digest in sorted(set(found)))
    return f"{torch}{hashes}\n    # its own index, see TORCH_WHEELS in the Dockerfile\n"


def write(file: Path, text: str) -> None:
    """Write a file by rename."""
    hidden = file.with_name(f".{file.name}")
    hidden.write_text(text)
    hidden.rename(file)


def _read(lock: Path) -> list[str]:
    """A lock's text, if there is one."""
    return [lock.read_text()] if lock.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("torch", help="torch==VERSION")
    parser.add_argument("--upgrade", action="store_true")
    given = parser.parse_args()
    upgrade = ["--upgrade"] if given.upgrade else []
    tested = environment(given.torch, upgrade)
    locks = {CI / f"{name}.lock": packages for name, packages in tested.items()}
    cuda = image(given.torch, upgrade)
    source = {name: cuda.pop(name) for name in SOURCE_ONLY}
    before = "".join(_read(CI / "torch-cpu.lock"))
    cpu = {"torch": torch_without_cuda(f"{given.torch}+cpu", blocks(before).get("torch", ""))}
    without_cuda = {name: text for name, text in cuda.items() if not CUDA.match(name)}
    locks[CI / "torch-cpu.lock"] = cpu
    locks[FOLDER / "source.lock"] = source
    locks[FOLDER / "cuda.lock"] = cuda
    locks[FOLDER / "cpu.lock"] = without_cuda | cpu
    # only now: if something cannot be resolved, all locks stay as they are
    for file, packages in locks.items():
        write(file, HEADER + "".join(packages.values()))
    dockerfile = FOLDER / "Dockerfile"
    text, said = base_image.pin(dockerfile.read_text(), upgrade=given.upgrade)
    write(dockerfile, text)
    print(said, file=sys.stderr)


if __name__ == "__main__":
    main()

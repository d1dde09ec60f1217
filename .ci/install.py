"""`make venv`: installs what the locks of this folder pin, and no file that has another hash.

    .venv/bin/python .ci/install.py [--cuda]

First `build.lock`: uv, and what builds the packages that have no wheel; so no build fetches
anything of its own. Then `packages.lock`, one build of torch, and this checkout.

torch without CUDA is on an index of its own, PyTorch's, so `torch-cpu.lock` is tried first: pip
finds it if it is configured for that index or has the wheel. Otherwise `torch-cuda.lock` is
installed, the build of the package index. One list cannot hold both: pip would always prefer the
package index's, which has hashes in it for more systems. `--cuda` takes the latter in any case,
for the environment of the null GPU (tests/null_gpu).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
EXACTLY = ("--no-deps", "--require-hashes", "--requirement")
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
UV = (
    sys.executable, "-m", "uv", "pip", "install",
    "--quiet", "--system-certs", "--compile-bytecode",
)  # fmt: skip
# DeepSpeed's compiled operators are not used, so none is built
ENVIRONMENT = os.environ | {"DS_BUILD_OPS": "0"}


class HashError(Exception):
    """A file is not the one that a lock pins; the message is one line."""


def attempt(lock: Path, *command: str) -> str:
    """Install a lock's packages: "" or, if that fails, what the command printed.

    Raises HashError if a file has a hash that the lock does not name.
    """
    count = lock.read_text().count("==")
    print(f"installing from {lock.name}: {count} packages", flush=True)
    result = subprocess.run(
        [*command, *EXACTLY, str(lock)], env=ENVIRONMENT, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    said = result.stdout
    if re.search("Hash mismatch for|DO NOT MATCH THE HASHES", said):
        # uv: for `NAME==VERSION` ... Computed: ...; pip: NAME==VERSION from PLACE ... Got ...
        name = re.search(r"(?:mismatch for `|^ +)(\w\S*?==[^\s;`]+)", said, re.M)
        found = re.search(r"(?:Computed:\s+sha256:|Got +)(\w+)", said)
        raise HashError(
            f"{name[1] if name else 'a file'} has the sha256 {found[1] if found else '(unknown)'}, "
            f"which is not in {lock.name}; not installed: find out who changed the file at your "
            "package index"
        )
    return said or "no message" if result.returncode else ""


def install_packages(lock: Path) -> str:
    """With uv, in a fifth of pip's time; with pip where only its configuration names the index."""
    if not attempt(lock, *UV, "--no-build-isolation"):
        return ""
    return attempt(lock, *PIP, "--no-build-isolation")


def install_torch(cpu: Path, cuda: Path) -> str:
    """Without CUDA if this machine's pip finds that build, else the one of the package index."""
    wheels = (*PIP, "--only-binary", ":all:")
    try:
        if not attempt(cpu, *wheels):
            return ""
    except HashError as error:
        print(f"warning: {error}; taking the build with CUDA", file=sys.stderr)
    return attempt(cuda, *wheels)


def main() -> None:
    try:
        failed = (
            attempt(FOLDER / "build.lock", *PIP)
            or install_packages(FOLDER / "packages.lock")
            or (
                install_packages(FOLDER / "torch-cuda.lock")
                if "--cuda" in sys.argv[1:]
                else install_torch(FOLDER / "torch-cpu.lock", FOLDER / "torch-cuda.lock")
            )
        )
    except HashError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    if failed:
        print(failed, file=sys.stderr)
        sys.exit(1)
    checkout = [*UV, "--no-deps", "--no-build-isolation", "--editable", str(FOLDER.parent)]
    sys.exit(subprocess.run(checkout, check=False).returncode)


if __name__ == "__main__":
    main()

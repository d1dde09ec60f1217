"""The environment of the null GPU: the locks with CUDA's torch, in a folder of its own.

4.5 GB to download once, 6.2 GB on disk, a minute and a half on two cores. No driver is needed.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.null_gpu.build import built

ROOT = Path(__file__).parents[2]
INSTALL = ROOT / ".ci" / "install.py"
LOCKS = ("build.lock", "packages.lock", "torch-cuda.lock")
NEEDS = ("g++", "nm")
MARK = "installed"
ROOM_BYTES = 12e9


def make_environment(folder: Path, seconds: float) -> str:
    """Install it unless it is there already. Returns "", or in one line why that is impossible."""
    if missing := [name for name in NEEDS if not shutil.which(name)]:
        return f"{' and '.join(missing)} is not installed here (apt-get install g++)"
    wanted = locked()
    if (folder / MARK).exists() and (folder / MARK).read_text() == wanted:
        return ""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(folder.parent).free) < ROOM_BYTES:
        return f"{folder.parent} has {free / 1e9:.0f} GB left, and it takes {ROOM_BYTES / 1e9:.0f}"
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    said = run_for(seconds, folder / "bin" / "python", INSTALL, "--cuda")
    if said:
        return said
    (folder / MARK).write_text(wanted)
    return ""


def locked() -> str:
    """A hash of the locks, which changes when the environment must be made again."""
    content = b"".join((INSTALL.parent / name).read_bytes() for name in LOCKS)
    return hashlib.sha256(content).hexdigest()


def run_for(seconds: float, *command: object) -> str:
    """Run a command with all its children for a limited time. Returns "" or why it failed."""
    process = subprocess.Popen(
        [*map(str, command)], start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"its environment was not installed within {seconds:.0f} s"
    if not process.returncode:
        return ""
    lines = [line for line in said.splitlines() if line.strip()]
    return f"its environment cannot be installed: {lines[-1] if lines else process.returncode}"


def packages_of(folder: Path) -> Path:
    """Its site-packages."""
    found = sorted((folder / "lib").glob("python3*/site-packages"))
    assert found, f"{folder} is not an environment"
    return found[0]


def variables(folder: Path, builds: Path, scratch: Path, board: str) -> dict[str, str]:
    """The environment variables of a process on the null GPU.

    folder: the environment; builds: of the two libraries; scratch: for caches, which start empty.
    """
    libraries = built(packages_of(folder), builds)
    return os.environ | {
        "LD_PRELOAD": str(libraries / "libnullgpu.so"),
        "LD_LIBRARY_PATH": str(libraries),
        "TRITON_LIBCUDA_PATH": str(libraries),
        "NULL_GPU_BOARD": board,
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TENFOLD_ROOT": str(scratch / "root"),
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(ROOT),
    }

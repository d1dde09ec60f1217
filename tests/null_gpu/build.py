"""Compiles the null GPU: device/*.cc and generated stubs -> two shared libraries.

libnullgpu.so is preloaded and stands for cudart, cuBLAS, cuBLASLt, cuDNN and NCCL; libcuda.so.1 for
the driver. They are compiled against the headers of one environment, into a folder named after the
hash of their sources: 10 seconds once, then found.
"""

import hashlib
import os
import subprocess
from pathlib import Path

from tests.null_gpu import stubs

ROOM = Path(__file__).parent
DEVICE = ROOM / "device"
PRELOADED = ("ledger", "runtime", "products", "graphs", "collectives")
HEADERS = (
    "nvidia/cu13/include", "nvidia/cudnn/include", "nvidia/nccl/include",
    "triton/backends/nvidia/include",
)  # fmt: skip
"""Folders of the environment's packages; Triton has the driver's."""
COMPILER = (
    "g++", "-std=c++17", "-O1", "-fPIC", "-shared", "-Wall", "-Wno-attributes",
    "-Wno-return-type",  # of functions that device/nv/target empties
)  # fmt: skip


def built(packages: Path, folder: Path) -> Path:
    """The folder with both libraries, compiled if their sources have changed.

    packages: site-packages of the environment; folder: for all builds. Raises CalledProcessError
    with the compiler's messages on stderr.
    """
    sources = [DEVICE / f"{name}.cc" for name in PRELOADED]
    torch = sorted((packages / "torch" / "lib").glob("lib*torch*.so"))
    wanted = stubs.undefined([*torch, packages / "torch/lib/libc10_cuda.so"])
    wanted -= stubs.modelled(sources)
    texts = {
        "runtime_stubs.cc": stubs.generate(wanted, stubs.RUNTIME),
        "driver_stubs.cc": stubs.generate((), stubs.DRIVER),
    }
    parts = [path.read_text() for path in sorted(DEVICE.rglob("*")) if path.is_file()]
    parts += texts.values()
    target = folder / hashlib.sha256("".join(parts).encode()).hexdigest()[:12]
    if (target / "libcuda.so.1").exists():
        return target
    target.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (target / name).write_text(text)
    _compile(packages, target / "libnullgpu.so", [*sources, target / "runtime_stubs.cc"])
    _compile(packages, target / "libcuda.so.1", [DEVICE / "driver.cc", target / "driver_stubs.cc"])
    return target


def _compile(packages: Path, library: Path, sources: list[Path]) -> None:
    include = [f"-I{DEVICE}"]
    for folder in HEADERS:
        include += ["-isystem", str(packages / folder)]
    # by rename: another process may be about to use it
    hidden = library.with_name(f".{library.name}.{os.getpid()}")
    command = [*COMPILER, *include, "-o", str(hidden), *map(str, sources), "-ldl"]
    subprocess.run(command, check=True)
    hidden.rename(library)

"""Bytes that Triton's kernels spill to memory, as ptxas reports them.

The driver of a null GPU loads no code, so it cannot tell; the PTX in Triton's cache is assembled
again, for the architecture that it was written for.
"""

import re
import subprocess
from pathlib import Path

TARGET = re.compile(r"^\.target (sm_\w+)", re.MULTILINE)
STACK = re.compile(r"(\d+) bytes stack frame")


def spilled_bytes(cache: Path, assembler: Path) -> dict[str, int]:
    """Kernel -> bytes of its stack, for those in Triton's cache that have one."""
    found: dict[str, int] = {}
    for source in sorted(cache.rglob("*.ptx")):
        target = TARGET.search(source.read_text())
        assert target, f"{source} names no target"
        said = subprocess.run(
            [assembler, "--verbose", f"--gpu-name={target[1]}", "--output-file=/dev/null", source],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        stack = max(map(int, STACK.findall(said.stderr + said.stdout)), default=0)
        if stack:
            found[source.stem] = max(stack, found.get(source.stem, 0))
    return found


def assembler_of(packages: Path, target: int) -> Path:
    """Triton's ptxas; target: compute capability, 100 for Blackwell, which has its own."""
    folder = packages / "triton" / "backends" / "nvidia" / "bin"
    own = folder / "ptxas-blackwell"
    return own if target >= 100 and own.exists() else folder / "ptxas"

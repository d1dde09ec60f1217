"""Spills and instructions of the kernels in Triton's cache, read from their code.

The driver of a null GPU loads no code, so it cannot tell what a kernel spills: ptxas assembles the
PTX again, for the architecture that it was written for, and reports it. nvdisasm lists the
instructions of the norm kernels, which are bound by instructions and not by bytes when dropout is
drawn from torch's generator.
"""

import json
import math
import re
import subprocess
from pathlib import Path

TARGET = re.compile(r"^\.target (sm_\w+)", re.MULTILINE)
STACK = re.compile(r"(\d+) bytes stack frame")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(?!NOP)[A-Z]")
SHAPE = re.compile(r"tensor<((?:\d+x)+)")


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


def norm_instructions(cache: Path, disassembler: Path) -> dict[str, float]:
    """Kernel -> instructions per number of its block, of reductions with a LayerNorm, but those of
    embeddings.

    A static count: a loop counts once. Blocks are powers of two: a row of 768 numbers takes 1,024.
    Of kernels with the same name, the costliest.
    """
    counts: dict[str, float] = {}
    for code in sorted(cache.rglob("triton_[pr]e[rd]_*layer_norm*.cubin")):
        if "embedding" in code.stem:
            continue
        listing = subprocess.run(
            [disassembler, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        shapes = SHAPE.findall(code.with_suffix(".ttgir").read_text())
        block = max(math.prod(map(int, shape[:-1].split("x"))) for shape in shapes)
        lanes = 32 * json.loads(code.with_suffix(".json").read_text())["num_warps"]
        count = round(len(INSTRUCTION.findall(listing)) * lanes / block, 1)
        counts[code.stem] = max(count, counts.get(code.stem, 0))
    return counts


def tools(packages: Path, target: int) -> tuple[Path, Path]:
    """Triton's ptxas and nvdisasm; target: compute capability, 100 for Blackwell, which has a
    ptxas of its own."""
    folder = packages / "triton" / "backends" / "nvidia" / "bin"
    own = folder / "ptxas-blackwell"
    ptxas = own if target >= 100 and own.exists() else folder / "ptxas"
    return ptxas, folder / "nvdisasm"

"""The functions of the null GPU that need no code of their own, as generated C++.

CUDA's libraries have hundreds of functions that torch links to. Those in `device/` are modelled.
Of the rest, the functions named here only change something that the host cannot see, so they return
success. Every other one fails with "not supported" and is counted as unmodelled, by name: torch
then stops with an error, and no case rests on a call whose effect is missing.
"""

import re
import subprocess
from collections.abc import Iterable, Set
from pathlib import Path

RUNTIME = frozenset(
    """
    cudaSetDevice cudaDeviceEnablePeerAccess cudaGetLastError cudaPeekAtLastError
    cudaHostRegister cudaHostUnregister cudaMemcpyToSymbol
    cudaStreamDestroy cudaStreamQuery cudaThreadExchangeStreamCaptureMode
    cudaEventDestroy cudaEventRecord cudaEventRecordWithFlags cudaEventQuery cudaStreamWaitEvent
    cudaFuncSetAttribute cudaKernelSetAttributeForDevice cudaProfilerStart cudaProfilerStop
    cublasDestroy_v2 cublasSetStream_v2 cublasSetWorkspace_v2 cublasSetMathMode
    cublasSetPointerMode_v2 cublasSetSmCountTarget
    cublasLtMatmulDescDestroy cublasLtMatrixLayoutDestroy cublasLtMatmulPreferenceDestroy
    cublasLtMatmulPreferenceSetAttribute
    cudnnSetStream cudnnBackendDestroyDescriptor
    ncclCommDestroy ncclCommAbort ncclCommFinalize ncclCommRegister ncclCommDeregister
    ncclGroupStart ncclGroupEnd
    """.split()  # noqa: SIM905
)
"""Success without an effect, in the preloaded library."""
DRIVER = frozenset(
    """
    cuInit cuCtxSetCurrent cuCtxSetLimit cuModuleUnload cuFuncSetAttribute cuFuncSetCacheConfig
    cuTensorMapEncodeTiled
    """.split()  # noqa: SIM905
)
"""Success without an effect, in libcuda.so.1."""
LIBRARIES = re.compile(r"(?:cuda|cublas|cudnn|nccl)[A-Z]")
NO_STATUS = re.compile(r"(?:Version|String|LastError|ErrorName)$")
"""Functions that return no status: those that are not modelled stay with their own library."""
NOT_SUPPORTED = {"cuda": 801, "cublas": 15, "cudnn": 3000, "nccl": 5}
"""The status of each library that says so; NCCL's is "invalid usage"."""


def undefined(libraries: Iterable[Path]) -> set[str]:
    """Names of CUDA's functions that these shared libraries want from others."""
    listed = subprocess.run(
        ["nm", "--dynamic", "--undefined-only", *map(str, libraries)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    names = {line.split()[-1].split("@")[0] for line in listed.splitlines() if " U " in line}
    return {name for name in names if LIBRARIES.match(name)}


def modelled(sources: Iterable[Path]) -> set[str]:
    """Names of the functions that these sources define: a definition starts its line."""
    pattern = re.compile(r"^[\w:]+(?: \w+)*[*&]* \*?((?:cu|nccl)\w+)\(", re.MULTILINE)
    return {name for source in sources for name in pattern.findall(source.read_text())}


def generate(wanted: Iterable[str], harmless: Set[str]) -> str:
    """The source of a function for each name: success if it is harmless, else its library's error.

    They take no arguments, which the calling convention of x86-64 and of ARM allows.
    """
    lines = ["// Written by stubs.py. No arguments are read, so none are declared.", 'extern "C" {']
    if set(wanted) - harmless:
        lines.append("void null_gpu_count(const char* kind, const char* name);")
    for name in sorted({*wanted, *harmless}):
        if name in harmless:
            lines.append(f"int {name}() {{ return 0; }}")
        elif not NO_STATUS.search(name):
            status = next(code for key, code in NOT_SUPPORTED.items() if name.startswith(key))
            lines += [
                f"int {name}() {{",
                f'  null_gpu_count("unmodelled", "{name}");',
                f"  return {status};",
                "}",
            ]
    return "\n".join([*lines, '}  // extern "C"', ""])

"""Limits of a rank's own node: files, locked memory, shared memory, memory, cores."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import socket
from pathlib import Path

from pipeline.base.command_line import cores
from pipeline.base.errors import ConfigError
from pipeline.base.private_directories import own_directory
from pipeline.diagnosis.checks import FAIL, WARN, Check, at_least, judge, judge_error, skip

GB = 1e9
_FEW_FILES, _SOME_FILES = 256, 4096
_LITTLE_MEMORY, _SOME_MEMORY = 0.5 * GB, 2 * GB
"""Bytes per rank; Python with torch takes about 0.5 GB."""
_LOCKED = 64 << 20
_ADDRESS_OF = 0x8915
"""SIOCGIFADDR, which asks for an interface's IPv4 address."""
_INFINIBAND = Path("/sys/class/infiniband")
_SHARED = 512 << 20
_FILE = 1 << 30
_LITTLE_ROOM = 100e6
_CGROUPS = (
    ("/sys/fs/cgroup", "memory.max"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
)


def check_host(local_size: int, local: Path | None = None) -> list[Check]:
    """The checks of this node; local_size: ranks on it; local: its directory for compiled code."""
    found = [
        _check_open_files(),
        _check_file_size(),
        _check_locked_memory(),
        _check_shared_memory(Path("/dev/shm")),
        _check_memory(local_size),
        _check_cores(local_size),
    ]
    return found + ([_check_local(local)] if local else [])


def find_interfaces(address: str, infiniband: Path = _INFINIBAND) -> list[str]:
    """The interface that has this IPv4 address, if any, then the InfiniBand and RoCE devices."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as question:
        for _, name in socket.if_nameindex():
            try:
                # struct ifreq has 40 bytes; the address follows name (16), family and port (2 each)
                answer = fcntl.ioctl(question, _ADDRESS_OF, name.encode().ljust(40, b"\0"))
            except OSError:  # an interface without an address
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                found.append(name)
    return found + sorted(path.name for path in infiniband.glob("*"))


def _limit(kind: int) -> float:
    soft, _ = resource.getrlimit(kind)
    return float("inf") if soft == resource.RLIM_INFINITY else float(soft)


def _check_open_files() -> Check:
    found = _limit(resource.RLIMIT_NOFILE)
    return at_least(
        "open files", found, _FEW_FILES, _SOME_FILES, f"{found:,.0f}", "",
        "raise ulimit -n in TENFOLD_SITE_ENV or ask the site",
    )  # fmt: skip


def _check_file_size() -> Check:
    found = _limit(resource.RLIMIT_FSIZE)
    shown = "unlimited" if found == float("inf") else f"{found / GB:.3g} GB"
    wrong = FAIL if found < _FILE / 16 else WARN if found < float("inf") else ""
    return judge("file size", shown, wrong, "unlimited", "set ulimit -f unlimited")


def _check_locked_memory(infiniband: Path = _INFINIBAND) -> Check:
    if not (infiniband.is_dir() and any(infiniband.iterdir())):
        return skip("locked memory", "no InfiniBand or RoCE here")
    found = _limit(resource.RLIMIT_MEMLOCK)  # RDMA pins its buffers
    shown = "unlimited" if found == float("inf") else f"{found / 2**20:.0f} MiB"
    wrong = FAIL if found < _LOCKED else WARN if found < float("inf") else ""
    return judge(
        "locked memory", shown, wrong, "unlimited",
        "set ulimit -l unlimited (Slurm: PropagateResourceLimitsExcept=MEMLOCK)",
    )  # fmt: skip


def _check_shared_memory(directory: Path) -> Check:
    try:
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return judge("shared memory", str(error), WARN, "512 MB", f"mount {directory}")
    return at_least(
        "shared memory", free, 0, _SHARED, f"{free / GB:.3g} GB free", " bytes",
        f"enlarge {directory} (containers: --shm-size), or clean it up",
    )  # fmt: skip


def _check_memory(local_size: int) -> Check:
    limit, where = _memory_limit()
    each = limit / max(1, local_size)
    return at_least(
        "memory per rank", each / GB, _LITTLE_MEMORY / GB, _SOME_MEMORY / GB,
        f"{each / GB:.3g} GB ({where})", " GB", "request more with --mem, or fewer ranks per node",
    )  # fmt: skip


def _memory_limit() -> tuple[float, str]:
    """Bytes that the processes of this node may use, and the source of that limit."""
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    limit, where = total, "the node's"
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    own = [line.split(":", 2) for line in lines]
    for root, name in _CGROUPS:
        for _, controllers, path in own:
            # v2's line names no controllers, v1's names `memory`
            if ("memory" in controllers.split(",")) != (name != "memory.max"):
                continue
            folder = Path(root + path)
            for level in (folder, *folder.parents):  # a limit may be set on any level above
                try:
                    value = float((level / name).read_text())
                except (OSError, ValueError):  # "max", or another place
                    continue
                if value < limit:  # v1 writes about 2^63 for no limit
                    limit, where = value, "the cgroup's"
    return limit, where


def _check_cores(local_size: int) -> Check:
    """Ranks that are bound to cores do not share them; unbound ones share the node's."""
    mine, all_cores = cores(), os.cpu_count() or 1
    each = mine / local_size if mine == all_cores else mine
    threads = os.environ.get("OMP_NUM_THREADS", "")
    wrong = WARN if each < 1 else ""
    if threads.isdecimal() and int(threads) > max(1, each):
        wrong = WARN
    return judge(
        "cores per rank", f"{each:.3g}, OMP_NUM_THREADS={threads or 'unset'}", wrong,
        "at least 1, and one per thread", "request more with --cpus-per-task",
    )  # fmt: skip


def _check_local(local: Path) -> Check:
    """Check that only its owner can change the directory of compiled code, and that it has room."""
    try:
        free = shutil.disk_usage(own_directory(local, "TENFOLD_LOCAL")).free
    except ConfigError as error:
        return judge_error("local directory", error)
    except OSError as error:
        return judge("local directory", str(error), FAIL, "", "set TENFOLD_LOCAL to another")
    return at_least(
        "local directory", free, _LITTLE_ROOM, GB, f"{local}: {free / GB:.3g} GB free", " bytes",
        "free some space there, or set TENFOLD_LOCAL to another directory",
    )  # fmt: skip

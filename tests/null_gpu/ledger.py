"""What the null GPU has counted, read inside the process that it is preloaded into.

with counting() as counts:
    step()
counts.attention     {"flash": (12, 12)}
"""

import ctypes
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ATTENTION = (
    (r"pytorch_flash::flash_fwd", "flash", 0),
    (r"pytorch_flash::flash_bwd_dq_dk_dv", "flash", 1),
    (r"fmha_cutlassF", "memory_efficient", 0),
    (r"fmha_cutlassB", "memory_efficient", 1),
    (r"cudnn graph of 2 products", "cudnn", 0),
    (r"cudnn graph of [3-9] products", "cudnn", 1),
)
"""Pattern of a kernel's name, the attention it belongs to, forward or backward. FlashAttention's
backward pass has two smaller kernels around this one. Nothing of these is attention in products."""
PRODUCT = re.compile(r"(\w+) (\d+) (\d+) (\d+) x(\d+)")


@dataclass(slots=True)
class Counts:
    """Events by kind and name."""

    events: dict[str, Counter[str]] = field(default_factory=dict)

    def of(self, kind: str) -> Counter[str]:
        """Name -> count; kind: see ledger.h."""
        return self.events.get(kind, Counter())

    def total(self, kind: str) -> int:
        return self.of(kind).total()

    @property
    def attention(self) -> dict[str, tuple[int, int]]:
        """Launches of fused attention by kernel, forward and backward."""
        found: dict[str, list[int]] = {}
        for name, count in self.of("kernel").items():
            for pattern, kernel, way in ATTENTION:
                if re.search(pattern, name):
                    found.setdefault(kernel, [0, 0])[way] += count
        return {kernel: (ahead, back) for kernel, (ahead, back) in sorted(found.items())}

    @property
    def kernels(self) -> dict[str, int]:
        """Launches by kind: triton, attention, other, and products."""
        triton = sum(n for name, n in self.of("kernel").items() if name.startswith("triton_"))
        attention = sum(ahead + back for ahead, back in self.attention.values())
        other = self.total("kernel") - triton - attention
        return {
            "triton": triton, "attention": attention, "products": self.total("product"),
            "other": other,
        }  # fmt: skip

    @property
    def product_flops(self) -> float:
        """Of all matrix products, those of attention without a fused kernel included."""
        total = 0.0
        for name, count in self.of("product").items():
            found = PRODUCT.fullmatch(name)
            assert found, name
            m, n, k, batch = map(int, found.groups()[1:])
            total += count * 2.0 * m * n * k * batch
        return total

    @property
    def collectives(self) -> list[dict[str, str | int]]:
        """Kind, type and bytes of each, with how often."""
        found: list[dict[str, str | int]] = []
        for name, count in sorted(self.of("collective").items()):
            kind, dtype, size = name.split(" ")
            found.append({"kind": kind, "dtype": dtype, "bytes": int(size), "count": count})
        return found


def read(text: str) -> Counts:
    """The counts of a file that `null_gpu_write` wrote: kind, name, count."""
    counts = Counts()
    for line in text.splitlines():
        kind, name, count = line.split("\t")
        counts.events.setdefault(kind, Counter())[name] += int(count)
    return counts


def check_modelled(counts: Counts) -> None:
    """Raises AssertionError if a call had no model: its case would rest on a missing effect."""
    unmodelled: Mapping[str, int] = counts.of("unmodelled")
    assert not unmodelled, f"the null GPU does not model {', '.join(unmodelled)}"


@contextmanager
def counting() -> Iterator[Counts]:
    """Counts what is asked of the device inside; filled when it ends."""
    counts = Counts()
    library().null_gpu_reset()
    yield counts
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counts"
        assert library().null_gpu_write(str(path).encode()) == 0
        counts.events.update(read(path.read_text()).events)


def library() -> ctypes.CDLL:
    """The process itself, into which libnullgpu.so is preloaded."""
    return ctypes.CDLL(None)

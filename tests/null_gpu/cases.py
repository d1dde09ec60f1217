"""The cases that are counted, and what is held of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

STAGES = (0, 1, 2)
MOST_SPILLED = 368
"""Bytes of stack that a kernel may have without a record; two kernels of ALBERT have more."""
SLOWER = 0.02
"""Largest loss of a predicted rate."""
RISE = 0.02
"""Largest rise of bytes and of instructions. Two runs of the same versions count the same, so this
only lets partial sums and block sizes change. The stored masks of a layer's two dropouts are 4 % of
the bytes; in the rate, they would pass: bytes take a third of the time."""
MEMORY = 0.10
"""Largest distance of the counted peak from the planned one."""
RECORDED = (
    "attention", "evaluation_attention", "waits_per_micro_batch", "waits_per_update", "copies",
    "copies_beside", "collectives", "predicted_sequences_per_second", "work", "spilled_bytes",
    "kilobytes_per_token_layer", "norm_instructions",
)  # fmt: skip
"""Fields of a case that expected.json keeps."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Cases of one process: a recipe with its rows, at some stages, on a board."""

    recipe: str
    rows: str
    stages: tuple[int, ...] = (1,)
    board: str = "H200"
    settings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "-".join((self.recipe, self.rows, self.board))


FAMILIES = ("roberta", "bert", "albert", "electra", "spanbert", "modernbert")
USUAL = (
    Cell("roberta_base", "short", STAGES),
    Cell("electra_base", "short"),
    Cell("albert_base", "short"),
)
"""Those of CI: every stage, a model with a generator, and one with pairs and shared layers."""
ALL = (
    *(Cell(f"{family}_base", "short", STAGES) for family in FAMILIES),
    *(Cell(f"{family}_base", "full") for family in FAMILIES),
    Cell("albert_base_v1_published", "short"),
    Cell("roberta_base", "documents", settings=("batch.attention=document",)),
    Cell("roberta_large", "short", STAGES),
    Cell("roberta_large", "full"),
    Cell("modernbert_large", "full"),
    Cell("roberta_large", "short", board="A100"),
    Cell("roberta_large", "short", board="B200"),
)
"""Every family with rows as they are on average and with full rows, large, and other boards."""


def key(case: Mapping[str, Any]) -> str:
    """The name of a case in expected.json."""
    return f"{case['recipe']} {case['rows']} stage {case['stage']} {case['board']}"


def recorded(case: Mapping[str, Any]) -> dict[str, Any]:
    """What expected.json keeps of a case."""
    return {name: case[name] for name in RECORDED}


def problems(case: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
    """What does not hold of a case; expected: its record."""
    name = key(case)
    for what in ("attention", "evaluation_attention"):
        if (found := sorted(case[what])) != (wanted := sorted(expected[what])):
            yield f"{name}: {what} runs {_words(found)}, expected {_words(wanted)}"
    for what in ("waits_per_micro_batch", "waits_per_update"):
        if case[what] > expected[what]:
            yield f"{name}: {what} is {case[what]:g}, expected {expected[what]:g}"
    if case["stage"] < 2 and case["waits_per_micro_batch"]:
        yield f"{name}: the host waits for the device in a micro-batch: {case['waits']}"
    for way, count in case["copies"].items():
        if "pageable" in way:
            yield f"{name}: {count:g} copies {way} per micro-batch; pin that memory"
        if (beside := case["copies_beside"].get(way, 0)) < expected["copies_beside"].get(way, 0):
            yield (
                f"{name}: {beside:g} copies {way} run beside kernels, expected "
                f"{expected['copies_beside'][way]:g}"
            )
    if case["collectives"] != expected["collectives"]:
        yield f"{name}: collectives {case['collectives']}, expected {expected['collectives']}"
    for kernel, size in case["spilled_bytes"].items():
        if size > (most := max(MOST_SPILLED, expected["spilled_bytes"].get(kernel, 0))):
            yield f"{name}: {kernel} spills {size} bytes, at most {most}"
    yield from _risen(case, expected)
    distance = case["peak_gb"] / case["planned_gb"] - 1
    if abs(distance) > MEMORY:
        yield f"{name}: peak {case['peak_gb']} GB is {distance:+.0%} from {case['planned_gb']}"
    for gpu, rate in case["predicted_sequences_per_second"].items():
        before = expected["predicted_sequences_per_second"][gpu]
        if rate < (1 - SLOWER) * before:
            yield f"{name}: {rate} sequences/s predicted on {gpu}, {before} before"


def _risen(case: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
    """Bytes of all kernels and instructions of norm kernels that exceed the record. A norm kernel
    with a new name is compared with the costliest of its pass."""
    moved, before = (each.get("kilobytes_per_token_layer", {}) for each in (case, expected))
    total, limit = sum(moved.values()), (1 + RISE) * sum(before.values())
    if before and total > limit:
        kernel = max(moved, key=lambda kernel: moved[kernel] - before.get(kernel, 0))
        yield (
            f"{key(case)}: {total:.1f} kB per token and layer, {sum(before.values()):.1f} before; "
            f"{kernel} moves {moved[kernel]:g}, {before.get(kernel, 0):g} before"
        )
    before = expected.get("norm_instructions", {})
    for kernel, count in case["norm_instructions"].items() if before else ():
        own_pass = [each for each in before if ("backward" in each) == ("backward" in kernel)]
        most = before.get(kernel, max(map(before.get, own_pass), default=0))
        if count > (1 + RISE) * most:
            yield f"{key(case)}: {kernel} takes {count} instructions per number, {most} before"


def _words(kernels: list[str]) -> str:
    return " and ".join(kernels) or "no fused kernel"

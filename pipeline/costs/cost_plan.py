"""A run, its data and its machines -> everything that it takes, section by section."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pipeline.base.durations import in_words
from pipeline.base.errors import ConfigError
from pipeline.config.run import Run
from pipeline.costs.communication import bytes_sent
from pipeline.costs.data_use import data_use, data_warnings
from pipeline.costs.device_rates import Hardware
from pipeline.costs.disk import disk, text_bytes
from pipeline.costs.estimate import Estimate
from pipeline.costs.expected_data import NOWHERE
from pipeline.costs.memory import host_memory, largest_micro_batch, memory, not_planned
from pipeline.costs.plan_sections import CostPlan, PlanSection, band, format_value
from pipeline.costs.preparation.stage_time import STARTUP_SECONDS, Work, stage_seconds
from pipeline.costs.site_rates import SiteRates
from pipeline.costs.training_time import budget, run_hours, step_parts, total
from pipeline.data.text.text_tasks import SPLIT_BYTES
from pipeline.loading.dataset import Dataset
from pipeline.planning.deepspeed_config import DeepSpeedFile, read_deepspeed_file
from pipeline.planning.doubts import Machines, doubts
from pipeline.planning.phases import Phase, make_phases

STAGES = (0, 1, 2, 3)
THIS = " (this plan)"
RATES = {"byte-bpe": 50e6, "wordpiece": 45e6, "unigram": 29e6}
"""Bytes of JSON lines to shards with ten masks, per second and core (RESULTS.md)."""
_BAND = (0.8, 1.25)
DISK_BANDWIDTH = (0.5e9, 2e9, 10e9)
"""Bytes per second of a shared file system, read and written; assumed."""
NODES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A run that could be started: settings, data and machines that fit together."""

    run: Run
    train: Sequence[Dataset]
    validation: Sequence[Dataset]
    file: DeepSpeedFile
    hardware: Hardware
    site: SiteRates

    @property
    def stage(self) -> int:
        """The stage of ZeRO, in effect."""
        return self.file.stage(self.run.precision)

    def phases(self, hardware: Hardware) -> tuple[Phase, ...]:
        """The phases on some machines. Raises ConfigError if a step is too small for them."""
        return make_phases(self.run, hardware.ranks, self.stage, self.train, self.validation)

    def hours(self, hardware: Hardware) -> Estimate:
        """Hours of the whole run on some machines. Raises ConfigError as `phases` does."""
        phases = self.phases(hardware)
        steps = [total("step", self.step(phase, hardware)) for phase in phases]
        return run_hours(phases, steps)

    def step(self, phase: Phase, hardware: Hardware) -> list[Estimate]:
        """The seconds of a step of a phase, part by part."""
        return step_parts(phase.run, phase.plan, hardware, self.file, self.site)


def make_cost_plan(planned: PlannedRun, price: float, found: Sequence[str]) -> CostPlan:
    """price: of a GPU-hour, or of a node-hour without GPUs, 0 if unknown; found: warnings about
    the data.

    Raises ConfigError if the run cannot be divided among the machines.
    """
    hardware = planned.hardware
    phases = planned.phases(hardware)
    several = len(phases) > 1
    # The phase that needs the most memory.
    longest = max(phases, key=lambda phase: (phase.sequence_length, phase.plan.rows))
    lines = []
    for phase in phases:
        lines += [phase.words] * several + phase.lines()
    hours = planned.hours(hardware)
    text = text_bytes(planned.train)
    space = disk(planned.run, phases[0].plan.parameters, planned.train)
    shards = next(part for part in space if part.name == "shards")
    offline = "pipeline.prepare, before training"
    if planned.train[0].directory != NOWHERE:
        offline += " (done: these shards exist)"
    kind = "cpu" if hardware.device is None else "cuda"
    machines = Machines(kind, hardware.ranks, hardware.nodes * hardware.cores)
    sections = [
        _memory(planned, longest),
        *_host(planned, longest.run),
        *(_step(planned, phase, several) for phase in phases),
        PlanSection(
            "traffic", "bytes that each rank sends per step",
            bytes_sent(longest.run, hardware.ranks, planned.file, longest.plan.accumulation),
        ),
        PlanSection(
            "time", f"the whole run on {hardware.words}", [hours, *budget(hours, hardware, price)]
        ),
        PlanSection(
            "efficiency", "throughput per device, relative to one node",
            efficiency(hardware, planned.hours),
        ),
        PlanSection("data", "what the run reads", data_use(phases)),
        PlanSection("disk", "space that is needed", space),
        PlanSection(
            "preparation", offline,
            preparation_time(planned.run, text, shards, hardware.cores),
        ),
    ]  # fmt: skip
    warnings = [*found, *doubts(phases, machines), *data_warnings(phases)]
    warnings += not_planned(longest.run, hardware.ranks, planned.file)
    warnings += _room(planned, sections[0])
    return CostPlan(
        name=planned.run.name,
        machines=f"{hardware.words}, {planned.run.precision}, ZeRO stage {planned.stage}",
        plans=[phase.plan.to_dict() for phase in phases],
        lines=lines,
        mixtures=[phase.corpora_used for phase in phases],
        sections=sections,
        warnings=warnings,
        answer=_answer(planned, sections, price),
    )


def _answer(
    planned: PlannedRun, sections: Sequence[PlanSection], price: float
) -> list[tuple[str, str]]:
    """The answers to what users ask first, by name, in a line each."""
    parts = {
        (section.title.split()[0], part.name): part
        for section in reversed(sections)  # of equal names, the first one's value stays
        for part in section.estimates
    }
    steps = [section for section in sections if section.title.startswith("step")]
    noun = "GPU-hours" if planned.hardware.device else "node-hours"

    def said(section: str, name: str) -> str:
        return _with_band(parts[section, name])

    cost = f"{said('time', 'cost')}, {parts['time', 'cost'].assumption}" if price else ""
    return [
        ("time", f"{said('time', 'hours')}, {parts['time', 'hours'].assumption}"),
        (noun, said("time", noun)),
        ("cost", cost or f"unknown: add --price, for a {noun.removesuffix('s')}"),
        ("memory", _fits(planned, parts["memory", f"sum at stage {planned.stage}{THIS}"])),
        ("bound by", "; then ".join(map(_bound_by, steps))),
    ]


def _fits(planned: PlannedRun, needed: Estimate) -> str:
    """A rank's memory, and whether a device has it."""
    words = f"{_with_band(needed)} per rank"
    device = planned.hardware.device
    if device is None:
        return words
    fits = (
        "fits"
        if needed.most <= device.memory
        else "does not fit"
        if needed.least > device.memory
        else "may not fit"
    )
    return f"{words}, {fits} in {format_value(device.memory, 'bytes')} of each {device.name}"


def _with_band(part: Estimate) -> str:
    """The value, and the band if there is one."""
    around = f" ({words})" if (words := band(part)) else ""
    return format_value(part.value, part.unit) + around


def _bound_by(section: PlanSection) -> str:
    """The largest part of a step, and the next."""
    whole = next(part for part in section.estimates if part.name == "step")
    parts = [part for part in section.estimates if part.unit == "seconds" and part is not whole]
    first, *others = sorted(parts, key=lambda part: -part.value)
    words = [
        f"{part.name}, {part.value / whole.value:.0%} of a step of "
        f"{format_value(whole.value, 'seconds')}"
        if part is first
        else f"{part.name} {part.value / whole.value:.0%}"
        for part in (first, *others[:1])
        if part is first or part.value >= whole.value / 100
    ]
    return ", ".join(words)


def _memory(planned: PlannedRun, phase: Phase) -> PlanSection:
    """Bytes by part at the plan's micro-batch, the sum at each stage, the largest micro-batch."""
    ranks, device = planned.hardware.ranks, planned.hardware.device
    run = replace(phase.run, batch=replace(phase.run.batch, per_device=phase.plan.rows))
    on_gpu = device is not None
    found = memory(run, ranks, planned.file, on_gpu=on_gpu)
    for stage in sorted({max(stage, _least_stage(planned)) for stage in STAGES}):
        mine = stage == planned.stage
        # A given file is for one stage; the others are planned with those that ship.
        file = planned.file if mine else read_deepspeed_file(f"zero{stage}")
        parts = memory(run, ranks, file, on_gpu=on_gpu)
        why = f"the sum with --ds {file.name}; see what is not counted"
        found.append(
            replace(total(f"sum at stage {stage}" + THIS * mine, parts, "bytes"), assumption=why)
        )
    if device is not None:
        most = largest_micro_batch(phase.run, ranks, int(device.memory), planned.file)
        found.append(
            Estimate(
                "largest batch.per_device", most, "", "computed",
                f"rows whose upper end fits {device.memory / 1e9:.0f} GB ({device.source})",
            )
        )  # fmt: skip
    return PlanSection(
        "memory", f"per rank, {phase.plan.rows} rows of {phase.sequence_length}", found
    )


def _host(planned: PlannedRun, run: Run) -> list[PlanSection]:
    """Memory of a GPU's host that offload needs; no section without offload."""
    if planned.hardware.device is None:
        return []
    found = host_memory(run, planned.hardware.ranks, planned.file)
    if not found:
        return []
    count = planned.hardware.per_node
    each = total("sum per node", found, "bytes")
    why = f"{count} ranks, beside Python and the loader; offload has not run on a GPU here"
    whole = replace(
        each, value=count * each.value, low=count * each.least, high=count * each.most,
        assumption=why,
    )  # fmt: skip
    return [PlanSection("host", f"host memory per rank, by {planned.file.name}", [*found, whole])]


def _least_stage(planned: PlannedRun) -> int:
    """The lowest stage that runs: in bf16, 0 runs as 1."""
    return 0 if planned.run.precision == "fp32" else 1


def _step(planned: PlannedRun, phase: Phase, several: bool) -> PlanSection:
    parts = planned.step(phase, planned.hardware)
    whole = total("step", parts)
    rate = phase.plan.sequences
    speed = Estimate(
        "sequences per second", rate / whole.value, "", whole.basis, "over all ranks",
        rate / whole.most, rate / whole.least,
    )  # fmt: skip
    title = f"step {phase.number}" if several else "step"
    return PlanSection(title, "seconds of an optimizer step", [*parts, whole, speed])


def _room(planned: PlannedRun, section: PlanSection) -> list[str]:
    """A warning if the plan's micro-batch may not fit the device."""
    device = planned.hardware.device
    if device is None:
        return []
    needed = next(part for part in section.estimates if part.name.endswith(THIS))
    most = next(part for part in section.estimates if part.name == "largest batch.per_device")
    if needed.most <= device.memory:
        return []
    return [
        f"a rank needs {format_value(needed.value, 'bytes')}, "
        f"up to {format_value(needed.most, 'bytes')}, and "
        f"{device.name} has {format_value(device.memory, 'bytes')}; "
        + (
            f"add --set batch.per_device={most.value:.0f}"
            if most.value
            else "use a higher ZeRO stage"
        )
    ]


def preparation_time(run: Run, text: Estimate, shards: Estimate, cores: int) -> list[Estimate]:
    """The offline stage on `cores` cores, of one node or several; text, shards: bytes."""
    rate = RATES[run.data.tokenizer]
    # A split takes one worker, however many cores there are.
    work = Work("prepare", "a split", SPLIT_BYTES / rate, max(1.0, text.value / SPLIT_BYTES))
    cpu = stage_seconds([work], cores)
    moved = (text.value + shards.value) / DISK_BANDWIDTH[1]
    slowest = (text.most + shards.most) / DISK_BANDWIDTH[0]
    quickest = (text.least + shards.least) / DISK_BANDWIDTH[2]
    # Cores and disks work at the same time, so the slower one decides.
    least = max(cpu / _BAND[1] * text.least / text.value, quickest)
    most = max(cpu / _BAND[0] * text.most / text.value, slowest)
    seconds = max(cpu, moved)
    bound = "the cores" if cpu >= moved else "the file system"
    return [
        Estimate(
            "core-hours", text.value / rate / 3600, "hours", "estimated",
            f"{rate / 1e6:.0f} MB/s of JSON lines per core, {run.data.tokenizer} (RESULTS.md); "
            "extraction comes first: dumps 2.5, web pages 14.7 MB/s",
            text.least / rate / 3600 / _BAND[1], text.most / rate / 3600 / _BAND[0],
        ),
        Estimate(
            "hours", (STARTUP_SECONDS + seconds) / 3600, "hours", "estimated",
            f"on {cores:,} cores, bound by {bound}: {in_words(cpu)} of work, {in_words(moved)} "
            f"to read and write at {DISK_BANDWIDTH[1] / 1e9:.0f} GB/s (assumed)",
            (STARTUP_SECONDS + least) / 3600, (STARTUP_SECONDS + most) / 3600,
        ),
    ]  # fmt: skip


def efficiency(hardware: Hardware, hours_on: Callable[[Hardware], Estimate]) -> list[Estimate]:
    """The share of one node's throughput per device that remains on more nodes.

    hours_on: hours of the run on some machines; raises ConfigError where a step has too few
    sequences for the ranks, which ends the list. The band pairs least with least, and most with
    most.
    """
    one: Estimate | None = None
    found = []
    for nodes in NODES:
        try:
            hours = hours_on(replace(hardware, nodes=nodes))
        except ConfigError:  # too few sequences for so many ranks, and for any more
            break
        one = one or hours  # NODES begins with 1
        shares = sorted(
            min(1.0, mine / (nodes * other))
            for mine, other in (
                (one.value, hours.value), (one.least, hours.least), (one.most, hours.most),
            )
        )  # fmt: skip
        usual = min(1.0, one.value / (nodes * hours.value))
        found.append(
            Estimate(
                f"{nodes} node{'s' * (nodes > 1)}", usual, "share", hours.basis,
                f"{hours.value:.3g} h with the same batch", shares[0], shares[-1],
            )
        )  # fmt: skip
    return found

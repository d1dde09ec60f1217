"""A phase of a run and its machines -> seconds per step, hours, energy and cost, each a range.

`work_flops` counts what devices compute, padding and unused prediction slots included, so the rate
of one run holds for another batch, number of ranks or data. A rate is that of this site's own runs
of the recipe if there are any, else a share of the published peak. Runs with offload give no rate
and use none.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from pipeline.config.run import Run
from pipeline.costs.communication import bytes_sent, wire_bytes
from pipeline.costs.device_rates import CPU_CORE_FLOPS, CPU_UPDATE_SECONDS, Hardware
from pipeline.costs.estimate import Basis, Estimate
from pipeline.costs.kernel_rates import KERNEL_RATES, KernelRates, step_seconds
from pipeline.costs.site_rates import MachineRates, MeasuredRate, SiteRates, median_flops
from pipeline.costs.step_work import launch_seconds, step_work
from pipeline.planning.deepspeed_config import DeepSpeedFile
from pipeline.planning.phase_plan import Plan, flops_of
from pipeline.planning.phases import Phase
from pipeline.planning.schedule import sequences_until

ESTIMATED: Basis = "estimated"
HERE: Basis = "measured here"
UPDATE_BYTES = 30
"""Bytes of memory traffic per weight: LAMB reads and writes gradients, masters and moments."""
HOST_SECONDS = (1.5e-3, 4e-3, 9e-3)
"""Host time per step of a GPU: launches, waits, small all-reduces; most as in MLPerf's BERT."""
HIDDEN_SHARE = 0.6
"""Share of a micro-batch's compute that at best hides collectives of ZeRO stages 2 and 3."""
LOADER_TOKENS = 370e6
"""Tokens per second and core (RESULTS.md)."""
OTHERS_BAND = (0.4, 2.5)
"""Factors around a rate that was measured with another recipe."""


def work_flops(run: Run, plan: Plan, on_gpu: bool) -> int:
    """FLOPs of a step as it is computed: on a GPU with dead tokens and unused slots."""
    if not on_gpu:
        return plan.step_flops
    parts, length = plan.on_gpu.accumulation * plan.world_size, run.data.sequence_length
    rows = parts * plan.on_gpu.capacity.tokens // length
    return flops_of(run, rows, parts * plan.on_gpu.capacity.predictions, length)


def step_parts(
    run: Run, plan: Plan, hardware: Hardware, file: DeepSpeedFile, site: SiteRates
) -> list[Estimate]:
    """The seconds of an optimizer step, part by part; see `total`.

    run, plan: of one phase.
    """
    work = work_flops(run, plan, hardware.device is not None) / hardware.units
    measured = site.find(run.name, hardware.kind, run.precision)
    if measured and not file.uses_host():
        parts = [_seconds("forward, backward and update", work, *_measured(measured))]
        # Measured steps contain their collectives; only more ranks than those add to them.
        if hardware.ranks <= max(rate.ranks for rate in measured):
            return parts
        return [*parts, _communication(run, plan, hardware, file, parts[0], site)]
    compute = _compute(run, plan, hardware, file, site)
    return [
        compute,
        _update(plan, hardware, file.offloads()),
        _communication(run, plan, hardware, file, compute, site),
        *_host(hardware),
        _input(run, plan, compute),
    ]


def total(name: str, parts: Sequence[Estimate], unit: str = "seconds") -> Estimate:
    """The sum of some parts, with the sum of their bands."""
    basis = {part.basis for part in parts}
    return Estimate(
        name, sum(part.value for part in parts), unit,
        "measured here" if "measured here" in basis
        else "computed" if basis == {"computed"} else "estimated",
        "the sum of these lines",
        sum(part.least for part in parts), sum(part.most for part in parts),
    )  # fmt: skip


def run_hours(phases: Sequence[Phase], steps: Sequence[Estimate]) -> Estimate:
    """Hours of the whole run; steps: `total` of each phase at its full batch."""
    parts = []
    for phase, step in zip(phases, steps, strict=True):
        batch = replace(phase.run.batch, sequences=phase.plan.sequences)
        # In steps at the full batch: those of a batch warm-up are shorter.
        count = sequences_until(batch, phase.end - phase.begin) / phase.plan.sequences / 3600
        parts.append(_scale(step, "", "hours", count))
    found = total("hours", parts, "hours")
    return replace(found, assumption="without validation, checkpoints, restarts and queues")


def budget(hours: Estimate, hardware: Hardware, price: float) -> list[Estimate]:
    """Device-hours, cost and energy; price: of a device-hour, 0 if it was not given."""
    device = hardware.device
    noun = "GPU" if device else "node"
    count = hardware.ranks if device else hardware.nodes
    found = [_scale(hours, f"{noun}-hours", "", count)]
    found = [replace(found[0], assumption=f"on {count:,} {noun}{'s' * (count > 1)}")]
    if price:
        each = f"at {price:g} per {noun}-hour"
        found.append(replace(_scale(found[0], "cost", "", price), assumption=each))
    if device:
        least, most = (watts / 1000 for watts in device.watts)
        found.append(
            Estimate(
                "energy", found[0].value * most, "kWh", "estimated",
                f"per GPU {most * 1000:.0f} W with its share of the node, {least * 1000:.0f} W "
                f"alone ({device.source}); no cooling",
                found[0].least * least, found[0].most * most,
            )
        )  # fmt: skip
    return found


def _measured(rates: tuple[MeasuredRate, ...]) -> tuple[tuple[float, float, float], Basis, str]:
    least, usual, most = median_flops(rates)
    newest = rates[-1]
    count = f"{len(rates)} run{'s' * (len(rates) > 1)}"
    why = (
        f"site.json: median of {count} of this recipe, the last on {newest.measured_at[:10]} with "
        f"{newest.ranks} rank{'s' * (newest.ranks > 1)}, {newest.step_seconds:.3g} s per step"
    )
    return (0.9 * least, usual, 1.1 * most), "measured here", why


def _seconds(
    name: str, work: float, rates: tuple[float, float, float], basis: Basis, assumption: str
) -> Estimate:
    """The time of some work at a least, usual and most rate."""
    least, usual, most = rates
    return Estimate(
        name, work / usual, "seconds", basis, assumption, low=work / most, high=work / least
    )


def _compute(
    run: Run, plan: Plan, hardware: Hardware, file: DeepSpeedFile, site: SiteRates
) -> Estimate:
    """Forward and backward of a recipe that was not measured here, or with offload."""
    # In this order: other recipes here, kernels that were counted, a share of the peak.
    name, device = "forward and backward", hardware.device
    work = work_flops(run, plan, device is not None) / hardware.units
    ending = f" {hardware.kind} {run.precision}"
    others = tuple(
        rate for key, found in site.rates.items() if key.endswith(ending) for rate in found
    )
    unused = "; rates in site.json are of runs without offload" if others else ""
    if others and not file.uses_host():
        least, usual, most = median_flops(others)
        names = sorted({key.removesuffix(ending) for key in site.rates if key.endswith(ending)})
        why = f"site.json has other recipes on this device: {', '.join(names)}"
        band = (OTHERS_BAND[0] * least, usual, OTHERS_BAND[1] * most)
        return _seconds(name, work, band, "measured here", why)
    if device is None:
        why = (
            f"{CPU_CORE_FLOPS[0] / 1e9:.0f} to {CPU_CORE_FLOPS[2] / 1e9:.0f} GFLOP/s per core, the "
            "most for wide layers (RESULTS.md)"
        )
        rates, bound = _bound_rates(
            CPU_CORE_FLOPS, site if run.precision == "fp32" else None, hardware
        )
        return _seconds(name, work, rates, "estimated", why + bound + unused)
    kernels = KERNEL_RATES.get(device.name.lower())
    # Stage 3 compiles nothing, so these kernels are not its own.
    if kernels and run.precision == "bf16" and file.stage(run.precision) < 3:
        return _counted(run, plan, hardware, kernels, site, unused)
    peak, shares = device.flops(run.precision), device.utilization
    why = f"{shares[0]:.0%} to {shares[2]:.0%} of {peak / 1e12:g} TFLOP/s; "
    why += device.utilization_source
    least, usual, most = (share * peak for share in shares)
    known = site if run.precision == "bf16" else None  # in which the doctor measures GPUs
    rates, bound = _bound_rates((least, usual, most), known, hardware)
    return _seconds(name, work, rates, "estimated", why + bound + unused)


def _counted(
    run: Run, plan: Plan, hardware: Hardware, kernels: KernelRates, site: SiteRates, unused: str
) -> Estimate:
    """The kernels of a micro-batch at their rates, or the launches of its kernels if these take
    longer, in each micro-batch of a step."""
    # Matrix products of the doctor are large, so no kernel of ours is faster.
    (_, _, products), bound = _bound_rates((0.0, 0.0, kernels.products), site, hardware)
    kernels = replace(kernels, products=products)
    parts = step_seconds(step_work(run, plan.on_gpu.capacity), kernels)
    launches = launch_seconds(run)
    each = max(sum(parts.values()), launches)  # a host launches while the GPU computes
    words = ", ".join(f"{1e3 * seconds:.1f} ms of {part}" for part, seconds in parts.items())
    if each == launches:
        words = f"{1e3 * launches:.0f} ms of launches, longer than {words}"
    value = plan.on_gpu.accumulation * each
    low, high = (value * factor for factor in kernels.band)
    return Estimate(
        "forward and backward", value, "seconds", "computed",
        f"a micro-batch: {words}; rates {kernels.source}{bound}{unused}", low=low, high=high,
    )  # fmt: skip


def _bound_rates(
    rates: tuple[float, float, float], site: SiteRates | None, hardware: Hardware
) -> tuple[tuple[float, float, float], str]:
    """Rates that do not exceed the matrix products that the doctor measured, and words on that.

    site: None if products were measured in another precision.
    """
    measured = site.products(hardware.kind) if site else ()
    if not measured:
        return rates, ""
    most = max(rate.flops for rate in measured)
    least, usual, fastest = (min(rate, most) for rate in rates)
    return (least, usual, fastest), (
        f"; at most the {most / 1e12:.3g} TFLOP/s of a matrix product, {_doctors(measured)}"
    )


def _doctors(measured: Sequence[MachineRates]) -> str:
    """The file with the doctor's rates, and the date of the last."""
    count = f"{len(measured)} doctor's run{'s' * (len(measured) > 1)}"
    last = max(rate.measured_at for rate in measured)
    return f"site.json: {count}, the last on {last[:10]}"


def _update(plan: Plan, hardware: Hardware, on_host: bool) -> Estimate:
    """The optimizer, of the rank's share of the weights; on_host: with offload."""
    share = plan.parameters / (plan.world_size if plan.zero_stage else 1)
    name, device = "optimizer update", hardware.device
    if device is None or on_host:
        # A node's ranks share its cores.
        value = share * CPU_UPDATE_SECONDS * hardware.per_node / hardware.cores
        why = "0.84 s for RoBERTa-base on two cores (RESULTS.md)"
        if device:
            why = f"offloaded, on {hardware.cores} cores per node: {why}; without copies over PCIe"
    else:
        value = share * UPDATE_BYTES / device.bandwidth
        why = f"{UPDATE_BYTES} bytes per weight of this rank at {device.bandwidth / 1e12:g} TB/s"
    return Estimate(name, value, "seconds", "estimated", why, 0.8 * value, 2.5 * value)


def _communication(
    run: Run,
    plan: Plan,
    hardware: Hardware,
    file: DeepSpeedFile,
    compute: Estimate,
    site: SiteRates,
) -> Estimate:
    """Collectives that compute does not hide."""
    ranks = hardware.ranks
    sent = bytes_sent(run, ranks, file, plan.accumulation)
    moved = wire_bytes(sent, ranks) if ranks > 1 else 0.0
    least, usual, most = hardware.bus_bandwidth()
    where, basis = "between nodes" if hardware.nodes > 1 else "inside a node", ESTIMATED
    measured = site.links(hardware.kind, hardware.nodes, hardware.per_node)
    if measured:
        found = [rate.bus_bandwidth for rate in measured]
        least, usual, most = 0.9 * min(found), statistics.median(found), 1.1 * max(found)
        where, basis = f"{where}, {_doctors(measured)}", HERE
    if not moved:
        return Estimate("exposed communication", 0, "seconds", "computed", "one rank sends nothing")
    hidden, how = 0.0, "none hidden: after the last micro-batch"
    if plan.zero_stage >= 2 or (plan.zero_stage == 1 and run.precision == "fp32"):
        hidden = HIDDEN_SHARE * compute.value
        if plan.zero_stage == 1:
            hidden /= plan.accumulation  # stage 1 sends in the last micro-batch only
        how = f"at best hidden under {HIDDEN_SHARE:.0%} of compute"
    return Estimate(
        "exposed communication", moved / usual, "seconds", basis,
        f"{moved / 1e9:.3g} GB per rank at {usual / 1e9:.3g} GB/s {where}; {how}",
        max(0.0, moved / most - hidden), moved / least,  # only the least hides some of it
    )  # fmt: skip


def _host(hardware: Hardware) -> list[Estimate]:
    """Time that the host adds to a step; without a GPU, none."""
    if hardware.device is None:
        return []
    least, usual, most = HOST_SECONDS
    why = "launches, waits and small all-reduces; upper end from MLPerf's BERT on 64 H100"
    return [Estimate("host", usual, "seconds", "estimated", why, least, most)]


def _input(run: Run, plan: Plan, compute: Estimate) -> Estimate:
    """Waits for the loader, which works on one core while devices compute."""
    tokens = plan.rows * plan.accumulation * run.data.sequence_length
    needed = tokens / LOADER_TOKENS
    return Estimate(
        "input", max(0.0, needed - compute.value), "seconds", "estimated",
        f"the loader prepares a step in {1000 * needed:.2g} ms on one core, while devices compute",
        0.0, max(0.0, needed - compute.least),
    )  # fmt: skip


def _scale(part: Estimate, name: str, unit: str, factor: float) -> Estimate:
    return replace(
        part, name=name, unit=unit, value=part.value * factor,
        low=part.least * factor, high=part.most * factor,
    )  # fmt: skip

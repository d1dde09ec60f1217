"""RUN/plan.json: the plan of a run, compared with what its first steps measured.

The first rank notes when each of a life's first steps ends, and after the last of them compares the
median step with the plan's, and the bytes held with those computed. That is once in the life of a
run: a later one writes the file only if it is missing. The rate also goes to the site's rates,
which the next `pipeline.plan` uses. Nothing is waited for, and no other rank takes part.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import torch

from pipeline.base.files import write_whole
from pipeline.base.typed_json import as_json
from pipeline.costs.device_rates import Hardware, rates_of
from pipeline.costs.memory import held, memory
from pipeline.costs.site_rates import MeasuredRate, add_rate, key, read_site, site_file
from pipeline.costs.training_time import step_parts, total, work_flops
from pipeline.planning.deepspeed_config import DeepSpeedFile
from pipeline.planning.phases import Phase
from pipeline.training.optimizer.engine import ZeroEngine
from pipeline.training.run_directory.history import now_utc
from pipeline.training.run_directory.run_json import RunRecord
from pipeline.training.run_directory.run_status import PLAN

MEASURED_STEPS = 50
WARM_SHARE = 0.2
"""Share of the measured steps, the first ones, that is ignored: caches fill, code compiles."""


@dataclass(slots=True, kw_only=True)
class PlanCheck:
    """Times the first steps of a life of a run; for its first rank."""

    output: Path
    record: RunRecord
    file: DeepSpeedFile
    engine: ZeroEngine
    device: torch.device
    nodes: int
    """Hosts of the run's ranks."""
    usable: int
    """Cores of the first host that its ranks may use."""
    tell: Callable[[str], None]
    """Prints a warning."""
    phase: Phase | None = None
    ends: list[float] = field(default_factory=list)
    """Time at which each step of the phase ended, in seconds."""
    sequences: list[int] = field(default_factory=list)
    """Sequences of each step, over all ranks."""
    is_done: bool = False

    def step(self, phase: Phase, number: int, sequences: int) -> None:
        """A step has ended; number: the steps of the run up to this one."""
        if self.is_done:
            return
        if phase is not self.phase:
            self.phase, self.ends, self.sequences = phase, [], []
        self.ends.append(time.perf_counter())
        self.sequences.append(sequences)
        is_last = number == self.record.run.steps
        # Two ends make one interval.
        if len(self.ends) == MEASURED_STEPS or (is_last and len(self.ends) > 1):
            self.is_done = True
            try:
                self._write(phase)
            except Exception as error:  # whatever is wrong with a forecast, training continues
                self.tell(f"warning: no {PLAN}, or the site's rates lack this run: {error}")

    def step_seconds(self, phase: Phase) -> float:
        """The median of a step at the plan's batch; of a growing batch, scaled to it."""
        skipped = int(WARM_SHARE * len(self.ends))
        each = [
            # A step has no sequences if all of its shards are excluded.
            (end - begin) / max(1, sequences)
            for (begin, end), sequences in zip(pairwise(self.ends), self.sequences[1:], strict=True)
        ]
        # The median, as the times between steps include validations and checkpoints.
        return statistics.median(each[skipped:]) * phase.plan.sequences

    def _write(self, phase: Phase) -> None:
        hardware = hardware_here(self.device, phase.plan.world_size, self.nodes, self.usable)
        seconds = self.step_seconds(phase)
        found: dict[str, dict[str, float | None]] = {
            "seconds_per_step": {"predicted": None, "measured": seconds},
            "sequences_per_second": {
                "predicted": None, "measured": phase.plan.sequences / seconds,
            },
        }  # fmt: skip
        if hardware:
            parts = step_parts(phase.run, phase.plan, hardware, self.file, read_site(site_file()))
            predicted = total("step", parts).value
            found["seconds_per_step"]["predicted"] = predicted
            found["sequences_per_second"]["predicted"] = phase.plan.sequences / predicted
        found |= self._bytes(phase)
        content = as_json(found, indent=1)
        write_whole(self.output / PLAN, content.encode())
        file = site_file()
        is_whole = self.sequences[-1] == phase.plan.sequences  # the batch does not grow any more
        if file and hardware and is_whole:
            run = phase.run
            work = work_flops(run, phase.plan, self.device.type == "cuda")
            rate = MeasuredRate(
                flops=work / seconds / hardware.units,
                step_seconds=seconds,
                sequences_per_second=phase.plan.sequences / seconds,
                ranks=hardware.ranks,
                measured_at=now_utc(),
                versions=dict(self.record.versions),
            )
            add_rate(file, key(run.name, hardware.kind, run.precision), rate)

    def _bytes(self, phase: Phase) -> Mapping[str, dict[str, float | None]]:
        """Bytes of this rank: computed, and held by torch."""
        run = replace(phase.run, batch=replace(phase.run.batch, per_device=phase.plan.rows))
        ranks = phase.plan.world_size
        of = {part.name: part.value for part in held(run, ranks, self.file)}
        found: dict[str, dict[str, float | None]] = {
            "moments_bytes": {"predicted": of["moments"], "measured": moment_bytes(self.engine)}
        }
        # At stage 3 a module's weights are empty between its uses.
        if self.engine.stage < 3:
            measured = weight_bytes(self.engine.module)
            found["weights_bytes"] = {"predicted": of["weights"], "measured": measured}
        if self.device.type == "cuda":
            found["peak_memory_bytes"] = {
                "predicted": sum(
                    part.value
                    for part in memory(run, ranks, self.file)
                    if part.basis == "computed"  # what torch allocates, without the context
                ),
                "measured": torch.cuda.max_memory_allocated(self.device),
            }
        return found


def hardware_here(device: torch.device, ranks: int, nodes: int, usable: int) -> Hardware | None:
    """The machines of this run; None if nothing was published about its GPUs.

    usable: cores of a node that its ranks may use.
    """
    per_node = max(1, ranks // nodes)
    if device.type == "cuda":
        rates = rates_of(torch.cuda.get_device_name(device))
        if rates is None:
            return None
        return Hardware(device=rates, nodes=nodes, per_node=per_node, cores=usable, nics=per_node)
    used = min(usable, torch.get_num_threads() * per_node)
    return Hardware(device=None, nodes=nodes, per_node=per_node, cores=used, nics=1)


def weight_bytes(module: torch.nn.Module) -> int:
    """Bytes of the storages of a network's weights; views of one storage count once."""
    storages = {
        parameter.untyped_storage().data_ptr(): parameter.untyped_storage().nbytes()
        for parameter in module.parameters()
    }
    return sum(storages.values())


def moment_bytes(engine: ZeroEngine) -> int:
    """Bytes of the optimizer's moments on this rank."""
    states = engine.optimizer.state.values()
    return sum(tensor.nbytes for state in states for tensor in state.values())

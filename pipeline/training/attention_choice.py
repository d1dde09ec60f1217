"""The kernel of attention that a run trains with: tried at its start, recorded, kept on resumes.

The candidates are tried in their order (`model.attention_check`), on every rank; the first one
without a fault on any rank is taken by all of them, as ranks that run different kernels could not
be repeated on another cluster. A resumed run starts with the kernel of run.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import torch

from model.attention import AttentionKernel
from model.attention_check import Case, candidates, find_fault
from pipeline.base.errors import ConfigError
from pipeline.base.null_device import NULL
from pipeline.cluster.ranks import RankGroup, format_rank_error
from pipeline.config.run import Run
from pipeline.planning.phase_plan import encoder_config, generator_config, has_generator
from pipeline.planning.phases import Phase
from pipeline.training.run_directory.run_json import RunRecord


def attention_cases(run: Run, phases: Sequence[Phase], device: torch.device) -> list[Case]:
    """The cases of attention of each encoder, over all phases, one for each window."""
    configs = [encoder_config(run)] + ([generator_config(run)] if has_generator(run) else [])
    return [
        Case(
            device=device,
            dtype=torch.bfloat16 if run.precision == "bf16" else torch.float32,
            heads=config.heads,
            head_size=config.width // config.heads,
            longest=max(phase.sequence_length for phase in phases),  # kernels may fail there only
            tokens=max(phase.plan.rows * phase.sequence_length for phase in phases),
            dropout=max(phase.run.encoder.attention_dropout for phase in phases),
            window=window,
        )
        for config in configs
        # Each window once: a kernel does not know the depth of its layer.
        for window in dict.fromkeys(config.reach(depth) for depth in range(config.layers))
    ]


def recorded_attention(earlier: RunRecord, device: str, tells: bool) -> str:
    """The kernel that a resumed run starts with; "" to choose again on another type of device.

    tells: print a line about that; earlier: its run.json; device: this rank's, as recorded."""
    before = earlier.device
    if not earlier.attention or (before == "cpu") == (device == "cpu"):
        return earlier.attention
    if tells:
        print(
            f"attention: the run used {earlier.attention} on {before}; choosing again on {device}"
        )
    return ""


def choose_attention(
    cases: Sequence[Case], recorded: str, device: str, ranks: RankGroup
) -> AttentionKernel:
    """The kernel that all ranks take; the first rank names those that are passed over. Collective.

    recorded: that of run.json, "" if there is none; a kernel that is not a candidate is ignored.
    device: as recorded; nothing is tried on the null one. Raises ConfigError if no kernel is left.
    """
    names = candidates(cases)
    if recorded in names:
        # Those before it failed when the run was started.
        names = names[names.index(recorded) :]
    if device == NULL:
        return names[0]
    # All candidates on every rank: then a single collective decides.
    own = json.dumps([_fault(name, cases) for name in names])
    by_rank = [json.loads(text) for text in ranks.gather(own)]
    faults = [format_rank_error(found) for found in zip(*by_rank, strict=True)]
    if all(faults):
        raise ConfigError(
            f"no kernel of attention can be used on {device}: {'; '.join(faults)}; train on "
            "another device, or with another version of torch"
        )
    taken = faults.index("")
    for fault in faults[:taken] if ranks.rank == 0 else ():
        print(f"warning: attention: {fault}; {names[taken]} is used instead", file=sys.stderr)
    return names[taken]


def _fault(name: AttentionKernel, cases: Sequence[Case]) -> str:
    """The kernel and the first of its faults, "" if it has none."""
    faults = (find_fault(name, case) for case in cases)
    return next((f"{name} {fault}" for fault in faults if fault), "")

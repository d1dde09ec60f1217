"""LAMB's cost on a CPU: the optimizer step of RoBERTa-base in the engine under ZeRO-1, fp32.

    python -m tests.benchmarks.bench_optimizer

LAMB, AdamW and PyTorch's fused AdamW on the same fragments take turns. Times are of the whole
`ZeroEngine.step`, which includes DeepSpeed's copies. How far a LAMB without knowledge of ZeRO
deviates is printed by `python -m tests.pipeline.training.zero_launch`.
"""

import os
from collections.abc import Sequence

import torch

from pipeline.base.errors import run_command
from pipeline.training.optimizer.cpu_update import CompiledUpdate
from pipeline.training.optimizer.engine import ZeroEngine
from pipeline.training.optimizer.fragments import view
from pipeline.training.optimizer.lamb_variants import AdamStep
from tests.benchmarks.bench_training import as_inputs, base_run, collated, our_engine_micro_step
from tests.benchmarks.models import SPECIAL, masked_language_model, zero_engine
from tests.benchmarks.timing import THREADS, Seconds, median, parse, ratio, rounds

ROUNDS = 9
FUSED = "PyTorch's fused AdamW"
GOAL = 1.1


class FusedAdamW(CompiledUpdate):
    """PyTorch's fused AdamW; everything else as in ours."""

    def set_fragments(self, engine: ZeroEngine) -> None:
        """The fragments of an engine at stage 1, whose weights are in one flat tensor."""
        optimizer = engine.optimizer
        self.parts = [*optimizer._fragments]
        self.states = [*optimizer.fragments()]
        self.decays = [optimizer._decay(optimizer.logical[part.logical]) for part in self.parts]
        self.step = torch.zeros(())

    def advance_and_apply(
        self, gradients: Sequence[torch.Tensor], adam: AdamStep, rate: float
    ) -> None:
        self.step.fill_(adam.updates)
        scale = None if adam.gradient_scale == 1 else torch.tensor(1 / adam.gradient_scale)
        for decay in set(self.decays):
            own = [index for index, found in enumerate(self.decays) if found == decay]
            torch._fused_adamw_(
                [self.states[index].weight for index in own],
                [view(gradients[0], self.parts[index]) for index in own],
                [self.states[index].exp_avg for index in own],
                [self.states[index].exp_avg_sq for index in own],
                [], [self.step] * len(own), lr=rate, beta1=adam.beta1, beta2=adam.beta2,
                weight_decay=decay, eps=adam.eps, amsgrad=False, maximize=False, grad_scale=scale,
            )  # fmt: skip


def bench(engine: ZeroEngine) -> dict[str, list[Seconds]]:
    """Seconds of steps; each has its own gradients, as in training."""
    batch = {name: value[:, :8] for name, value in collated(1).items()}
    batch["labels"][0, 1] = SPECIAL
    inputs, optimizer = as_inputs(batch), engine.optimizer
    moments = [tuple(optimizer.state[flat].values()) for flat in optimizer._flats]
    decays = [optimizer._decay(part) for part in optimizer.logical]
    fused = FusedAdamW(optimizer._flats, moments, optimizer._fragments, decays)  # type: ignore[arg-type]
    fused.set_fragments(engine)
    ours = optimizer._update
    ways = {"LAMB": ("lamb", ours), "AdamW": ("adamw", ours), FUSED: ("adamw", fused)}
    found: dict[str, list[Seconds]] = {name: [] for name in ways}
    for counted in rounds(ROUNDS):
        for name, (kind, update) in ways.items():
            optimizer.settings, optimizer._update = base_run(kind).optimizer, update
            our_engine_micro_step(engine, inputs, 1)
            seconds = Seconds.of(lambda: engine.step(1e-4))
            if counted:
                found[name].append(seconds)
    return found


def main() -> None:
    parse(__doc__, threads=THREADS)
    print(f"optimizer: {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f} before")
    engine = zero_engine(masked_language_model(base_run()), base_run())
    found = bench(engine)
    engine.close()
    for name, steps in found.items():
        wall, cpu = median(steps)
        more = ratio(steps, found[FUSED])
        print(
            f"optimizer: {name}: step {wall * 1e3:.0f} ms, CPU {cpu * 1e3:.0f} ms; to {FUSED} "
            f"{more.wall:.3f}, by CPU seconds {more.cpu:.3f}"
        )
    more = ratio(found["LAMB"], found["AdamW"])
    print(
        f"optimizer: LAMB's step is {more.wall:.3f} of our AdamW's by the clock, {more.cpu:.3f} by "
        f"CPU seconds (goal <= {GOAL}), {len(found['LAMB'])} rounds"
    )


if __name__ == "__main__":
    run_command(main, at_once=True)

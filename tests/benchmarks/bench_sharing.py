"""ALBERT's layers with shared weights and with separate weights: memory, seconds per step.

    python -m tests.benchmarks.bench_sharing [--threads N]

Both have the sizes of `albert_base`, fp32, LAMB, our engine at ZeRO stage 0 (no partitioning) on
the same random batch. Measures the bytes of weights, gradients and optimizer state that the
engine holds, each storage once, and steps of one micro-batch, which take turns: medians of ratios.
"""

from dataclasses import replace

import torch

from pipeline.base.errors import run_command
from pipeline.evaluation.loss_parts import first_count, loss_sum
from pipeline.loading.micro_batch import LossCounts
from pipeline.planning.build import build_model
from pipeline.recipes import recipe
from tests.benchmarks.bench_electra import inputs_of
from tests.benchmarks.models import zero_engine
from tests.benchmarks.timing import THREADS, in_turn, median, parse, ratio
from tests.pipeline.training.held import held_bytes

ROWS, LENGTH, ROUNDS = 4, 128, 7
GOAL_MEMORY, GOAL_SECONDS = 0.6, 1.0


class Side:
    """An engine that trains on one batch of pairs."""

    def __init__(self, sharing: str) -> None:
        run = recipe("albert_base")
        encoder = replace(run.encoder, sharing=sharing)
        run = replace(run, precision="fp32", encoder=encoder)  # which a CPU supports
        model = build_model(run, seed=0).train()
        self.parts = model.parts
        self.inputs = inputs_of(run, ROWS, LENGTH)._replace(
            segment_ids_T=(torch.arange(LENGTH) >= LENGTH // 2).long().repeat(ROWS),
            row_starts_R=LENGTH * torch.arange(ROWS),
            pair_labels_R=torch.arange(ROWS) % 2,
            draws_K=None,
        )
        self.counts = LossCounts(len(self.inputs.positions_K), ROWS * LENGTH, ROWS)
        self.engine = zero_engine(model, run, "zero0")
        self.held = 0

    def step(self) -> None:
        loss = loss_sum(self.parts, self.engine(self.inputs), self.counts)
        self.engine.backward(loss, first_count(self.parts, self.counts))
        self.held = self.held or held_bytes(self.engine)
        self.engine.step(1e-4)


def main() -> None:
    parse(__doc__, threads=THREADS)
    shared, unshared = Side("all"), Side("none")
    found = in_turn({"shared": shared.step, "unshared": unshared.step}, ROUNDS)
    faster = ratio(found["shared"], found["unshared"])
    print(
        f"sharing: step of {ROWS} x {LENGTH} tokens: shared {median(found['shared']).wall:.2f} s, "
        f"unshared {median(found['unshared']).wall:.2f} s, ratio {faster.wall:.3f} by the clock, "
        f"{faster.cpu:.3f} by CPU seconds (goal <= {GOAL_SECONDS}), {torch.get_num_threads()} "
        f"threads, {len(found['shared'])} rounds"
    )
    print(
        f"sharing: albert_base holds {shared.held / 1e6:,.0f} MB, unshared "
        f"{unshared.held / 1e6:,.0f} MB, {shared.held / unshared.held:.1%} (goal <= "
        f"{GOAL_MEMORY:.0%})"
    )


if __name__ == "__main__":
    run_command(main, at_once=True)

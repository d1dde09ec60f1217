"""Counts one case on the null GPU: `python -m tests.null_gpu.count_case RECIPE ROWS`, as JSON.

For a process that `run.py` starts with the null GPU preloaded. Prints a list of objects, one per
ZeRO stage. Each runs the trainer's own code: its engine, `Trainer._accumulate` on micro-batches
without data, and its update. Bytes are counted on the same model without an engine, because
DeepSpeed's hooks would be counted too.
"""

import argparse
import gc
import json
import sys
import time
from types import SimpleNamespace
from typing import Any, cast

import torch
import torch._inductor.config as inductor
from torch import nn

from model.hugging_face.conversion import Model, logical_parameters
from model.layers import Embeddings
from model.objectives.flops import attention_flops as forward_flops
from model.objectives.span_boundary import SpanBoundaryHead
from model.objectives.word_heads import MaskedLanguageHead, WordLosses
from pipeline.base.errors import run_command
from pipeline.cluster.ranks import Cluster
from pipeline.cluster.stop_request import StopRequest
from pipeline.config.run import Run
from pipeline.config.settings import override
from pipeline.costs.kernel_rates import KERNEL_RATES, AttentionName, StepWork, step_seconds
from pipeline.costs.memory import memory
from pipeline.evaluation.loss_parts import loss_sum
from pipeline.evaluation.model_inputs import model_inputs
from pipeline.loading.loader import Step
from pipeline.planning.build import build_model, compile_layers
from pipeline.planning.deepspeed_config import read_deepspeed_file
from pipeline.planning.phase_plan import encoder_config, generator_config
from pipeline.recipes import recipe
from pipeline.training.loop import Trainer
from pipeline.training.optimizer.engine import ZeroEngine, initialize_engine
from pipeline.training.run_directory.metrics_log import Pace
from pipeline.training.run_directory.stragglers import ForwardClock
from tests.null_gpu.batches import TOKENIZER, Rows, micro_batch, row_count, row_length, step
from tests.null_gpu.ledger import Counts, check_modelled, counting
from tests.null_gpu.moved_bytes import eager_bytes, triton_bytes

MICRO_BATCHES = 3
"""Of a counted step; waits and copies are per micro-batch."""
LEAST_MOVED = 50
"""Bytes per token and layer of a kernel that is recorded."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("rows", choices=("full", "short", "documents"))
    parser.add_argument("--stages", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    run = override(recipe(given.recipe), ["precision=bf16", *given.set])
    inductor.benchmark_kernel = True  # keeps each kernel's bytes
    cluster = Cluster.join(StopRequest())
    bare = bare_counts(run, given.rows, cluster.device)
    attention = evaluation_attention(run, given.rows, cluster.device)
    about = {
        "family": given.recipe.split("_")[0], "recipe": given.recipe, "format": run.data.format,
        "rows": given.rows, "layers": run.encoder.layers, "per_device": run.batch.per_device,
        "dropout": run.encoder.dropout, "attention_dropout": run.encoder.attention_dropout,
        "evaluation_attention": attention, **bare,
    }  # fmt: skip
    cases = [about | stage_counts(run, given.rows, stage, cluster) for stage in given.stages]
    print(json.dumps(cases))
    sys.stdout.flush()
    cluster.leave()


def bare_counts(run: Run, rows: Rows, device: torch.device) -> dict[str, Any]:
    """Of a micro-step without an engine: kernels, bytes, the predicted rate."""
    model = on_device(run, device)
    compile_layers(model, stage=1)
    inputs = model_inputs(micro_batch(run, rows, 0).to(device), TOKENIZER)
    counts = micro_batch(run, rows, 0).counts

    def micro_step() -> None:
        loss_sum(model.parts, model(inputs), counts).backward()

    micro_step()
    micro_step()
    torch.cuda.synchronize()
    with counting() as found:
        began = time.perf_counter()
        micro_step()
        host_seconds = time.perf_counter() - began
    check_modelled(found)
    with triton_bytes() as moved:
        micro_step()
    remove_compiled(model)
    eager = eager_bytes(micro_step)
    tokens = run.batch.per_device * run.data.sequence_length
    work = StepWork(
        product_flops=found.product_flops,
        attention_flops=attention_flops(run, rows, found),
        moved_bytes=moved.total() + eager.total(),
    )
    return {
        "attention": {kernel: list(both) for kernel, both in found.attention.items()},
        "kernels": found.kernels,
        "kilobytes_per_token_layer": {
            kernel: round(moved_bytes / tokens / run.encoder.layers / 1e3, 2)
            for kernel, moved_bytes in moved.most_common()
            if moved_bytes > LEAST_MOVED * tokens * run.encoder.layers
        },
        "eager_gb": round(eager.total() / 1e9, 2),
        "host_ms": round(1e3 * host_seconds, 1),
        "predicted_sequences_per_second": {
            gpu.upper(): round(row_count(run, rows) / sum(step_seconds(work, rates).values()), 1)
            for gpu, rates in KERNEL_RATES.items()
        },
        "work": {
            "product_flops": work.product_flops,
            "attention_flops": work.attention_flops,
            "moved_bytes": work.moved_bytes,
        },
        "predicted_ms_h200": {
            part: round(1e3 * seconds, 2)
            for part, seconds in step_seconds(work, KERNEL_RATES["h200"]).items()
        },
    }


def attention_flops(
    run: Run, rows: Rows, found: Counts
) -> dict[AttentionName, tuple[float, float]]:
    """Of the rows, shared by the launches of each kernel: two products of [S, S, D] forward, or of
    what windows leave of them, five backward. Documents are counted as if they were rows."""
    configs = [encoder_config(run)]
    if run.objective.kind not in ("mlm", "mlm_pair", "mlm_sbo"):
        configs.append(generator_config(run))
    length = row_length(run, rows)
    whole = float(row_count(run, rows) * sum(forward_flops(each, length) for each in configs))
    launches = sum(ahead for ahead, _ in found.attention.values())
    return {
        cast(AttentionName, kernel): (whole * ahead / launches, 2.5 * whole * back / launches)
        for kernel, (ahead, back) in found.attention.items()
    }


def evaluation_attention(run: Run, rows: Rows, device: torch.device) -> list[str]:
    """The kernels of a forward pass without dropout and gradients."""
    model = on_device(run, device).eval()
    inputs = model_inputs(micro_batch(run, rows, 0).to(device), TOKENIZER)
    with torch.no_grad(), counting() as found:
        model(inputs)
    check_modelled(found)
    return [*found.attention]


def stage_counts(run: Run, rows: Rows, stage: int, cluster: Cluster) -> dict[str, Any]:
    """Of a step under ZeRO: waits, copies, collectives and memory."""
    file = read_deepspeed_file(f"zero{stage}")
    gc.collect()  # the engine of the stage before
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()  # by what compiled code of the bare model keeps
    model = build_model(run, run.seed).to(cluster.device)
    logical = logical_parameters(model)
    compile_layers(model, file.stage(run.precision))
    engine = initialize_engine(
        model, run, file, logical, rows=run.batch.per_device, accumulation=MICRO_BATCHES
    )
    trainer = stand_in(run, engine, cluster, model)
    accumulate(trainer, step(run, rows, MICRO_BATCHES))
    engine.step(1e-4)
    torch.cuda.reset_peak_memory_stats()  # without what tuning took
    with counting() as micro:
        accumulate(trainer, step(run, rows, MICRO_BATCHES))
    with counting() as update:
        engine.step(1e-4)
    check_modelled(micro)
    check_modelled(update)
    peak = torch.cuda.max_memory_allocated() - before
    engine.close()
    planned = sum(part.value for part in memory(run, 1, file) if part.basis == "computed")
    return {
        "stage": stage,
        "waits_per_micro_batch": micro.total("wait") / MICRO_BATCHES,
        "waits_per_update": update.total("wait"),
        "waits": dict(sorted(micro.of("wait").items())),
        "copies": per_micro_batch(micro, "copy"),
        "copies_beside": per_micro_batch(micro, "beside"),
        "collectives": {"micro_batches": micro.collectives, "update": update.collectives},
        "update_kernels": update.kernels,
        "peak_gb": round(peak / 1e9, 3),
        "planned_gb": round(planned / 1e9, 3),
    }


def per_micro_batch(counts: Counts, kind: str) -> dict[str, float]:
    """Way -> copies of a kind, but those within the device."""
    return {
        way: count / MICRO_BATCHES
        for way, count in sorted(counts.of(kind).items())
        if way != "device -> device"
    }


def accumulate(trainer: Any, part: Step) -> None:
    """All micro-batches of a step, by the trainer's own code."""
    Trainer._accumulate(trainer, part, part.counts, Pace(0), trainer.display)


def stand_in(run: Run, engine: ZeroEngine, cluster: Cluster, model: Model) -> Any:
    """What `Trainer._accumulate` reads of a trainer."""
    manifest = SimpleNamespace(tokenizer=TOKENIZER)
    return SimpleNamespace(
        run=run, engine=engine, cluster=cluster, parts=model.parts, tokens=0,
        feed=SimpleNamespace(datasets=[SimpleNamespace(manifest=manifest)]),
        progress=SimpleNamespace(step=0),
        stop=SimpleNamespace(is_urgent=False),
        stragglers=SimpleNamespace(clock=ForwardClock(cluster.device)),
        watchdog=SimpleNamespace(through=lambda items: items),
        display=SimpleNamespace(micro_batch=lambda done, count: None),
    )  # fmt: skip


def remove_compiled(model: nn.Module) -> None:
    """Put modules that cost next to nothing in the places of those that are compiled, to count what
    is around them."""
    for parent in [*model.modules()]:
        if isinstance(parent, (MaskedLanguageHead, SpanBoundaryHead)):
            parent.word_losses = no_word_losses
        for name, child in [*parent.named_children()]:
            if child._compiled_call_impl is not None:
                setattr(parent, name, stand_in_of(child))


def stand_in_of(module: nn.Module) -> nn.Module:
    """A module with the same kind of output."""

    class StandIn(nn.Module):
        def forward(self, given: torch.Tensor, *_: Any) -> torch.Tensor:
            if not isinstance(module, Embeddings):
                return given
            shape = len(given), module.words.weight.shape[1]
            return torch.empty(shape, device=given.device).bfloat16().requires_grad_()

    return StandIn()


def no_word_losses(
    hidden: torch.Tensor, words: object, bias: object, labels: torch.Tensor, *_: object
) -> WordLosses:
    """As `word_losses`, without logits."""
    losses = hidden[:, 0].float()
    return WordLosses(losses, labels > 0, labels, losses.detach().expand(2, -1))


def on_device(run: Run, device: torch.device) -> Model:
    """A model in training mode and bf16; its weights are whatever the device holds."""
    with torch.device("meta"):
        model = build_model(run, 0)
    return cast(Model, model.to_empty(device=device).bfloat16().train())


if __name__ == "__main__":
    run_command(main, at_once=True)

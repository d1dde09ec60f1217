"""An ELECTRA step compared with its FLOPs at the rate of our masked language modelling.

    python -m tests.benchmarks.bench_electra [--threads N]

Forward and backward of the same encoder, fp32, on the same random batch: once with only the
masked-word head, once with a generator before it and a head at all tokens after it, sampling
included. FLOPs are those of `model.objectives.flops`. Interleaved; medians over rounds of seconds /
predicted seconds, by the clock and by CPU seconds. The base encoder and its generator are cut to
three layers, so that a round takes seconds.
"""

import argparse
from dataclasses import replace

import torch

from model.config import EncoderConfig
from model.hugging_face.conversion import Model
from model.objectives.flops import detection_flops, step_flops
from model.objectives.masked_language import Inputs, MaskedLanguageModel
from model.objectives.replaced_tokens import ReplacedTokenModel
from model.pieces import pieces_of
from pipeline.config.data_settings import prediction_count
from pipeline.evaluation.loss_parts import loss_sum
from pipeline.loading.micro_batch import LossCounts
from pipeline.planning.phase_plan import encoder_config, generator_config
from pipeline.recipes import recipe
from tests.benchmarks.bench_training import Seconds, parse_threads, ratios, rounds

CASES = {"electra_small": (12, 8), "electra_base": (3, 2)}
"""Layers of the encoder, and rows of a batch."""
ROUNDS = 7
MASK_ID = 103


def batch(config: EncoderConfig, rows: int, length: int, rate: float) -> Inputs:
    """Random words, some of which are predicted."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1000, config.vocab_size, (rows, length), generator=generator)
    count = prediction_count(length - 2, rate)
    inside = torch.rand(rows, length - 2, generator=generator).argsort(-1)[:, :count] + 1
    positions = (inside.sort(-1).values + torch.arange(rows)[:, None] * length).flatten()
    labels = ids.flatten()[positions].clone()
    ids.view(-1)[positions] = MASK_ID
    draws = torch.randint(-(2**62), 2**62, positions.shape, generator=generator)
    return Inputs(
        ids.flatten(), pieces_of([length] * rows), positions, labels,
        torch.ones(len(positions)), MASK_ID, draws_K=draws,
        segment_ids_T=torch.zeros_like(ids).flatten(), token_weights_T=torch.ones(ids.numel()),
    )  # fmt: skip


def bench(name: str) -> None:
    """Measure both sides of a recipe."""
    layers, rows = CASES[name]
    run = recipe(name)
    run = replace(run, encoder=replace(run.encoder, layers=layers))
    config, generator, length = encoder_config(run), generator_config(run), run.data.sequence_length
    inputs = batch(config, rows, length, run.data.masks.rate)
    predictions, tokens = len(inputs.positions_K), rows * length
    sizes = {"sequences": rows, "sequence_length": length, "predictions": predictions}
    flops = detection_flops(config, generator, **sizes), step_flops(config, **sizes)
    models: tuple[Model, Model] = (
        ReplacedTokenModel(config, generator, weight=50.0, seed=0).train(),
        MaskedLanguageModel(config, seed=0).train(),
    )
    counts = LossCounts(predictions, tokens, 0)

    def step(model: Model) -> None:
        for parameter in model.parameters():
            parameter.grad = None
        loss_sum(model.parts, model(inputs), counts).backward()

    found = []
    for counted in rounds(ROUNDS):
        pair = Seconds.of(lambda: step(models[0])), Seconds.of(lambda: step(models[1]))
        if counted:
            found.append(pair)
    wall, cpu = (ratio * flops[1] / flops[0] for ratio in ratios(found))
    print(
        f"electra: {name}, {layers} layers, {rows} x {length} tokens, {predictions} predicted: "
        f"{wall:.3f} of the predicted time by the clock, {cpu:.3f} by CPU seconds (FLOPs "
        f"{flops[0] / flops[1]:.3f} x masked language modelling's), "
        f"{torch.get_num_threads()} threads, {len(found)} rounds",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parse_threads(parser)
    for name in CASES:
        bench(name)


if __name__ == "__main__":
    main()

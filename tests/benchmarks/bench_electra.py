"""An ELECTRA step compared with its FLOPs at the rate of our masked language modelling.

    python -m tests.benchmarks.bench_electra [--threads N]

Forward and backward of the same encoder, fp32, on the same random batch: once with only the
masked-word head, once with a generator before it and a head at all tokens after it, sampling
included. FLOPs are those of `model.objectives.flops`. Both take turns; medians over rounds of
seconds / predicted seconds. The base encoder and its generator are cut to three layers, so that a
round takes seconds.
"""

from dataclasses import replace

import torch

from model.hugging_face.conversion import Model
from model.objectives.flops import detection_flops, step_flops
from model.objectives.masked_language import Inputs
from model.objectives.replaced_tokens import ReplacedTokenModel
from pipeline.config.data_settings import prediction_count
from pipeline.config.run import Run
from pipeline.evaluation.loss_parts import loss_sum
from pipeline.loading.micro_batch import LossCounts
from pipeline.planning.phase_plan import encoder_config, generator_config
from pipeline.recipes import recipe
from tests.benchmarks.models import masked_language_model, random_inputs
from tests.benchmarks.timing import THREADS, in_turn, parse, ratio

CASES = {"electra_small": (12, 8), "electra_base": (3, 2)}
"""Layers of the encoder, and rows of a batch."""
ROUNDS = 7


def inputs_of(run: Run, rows: int, length: int) -> Inputs:
    """With all that an objective may take, but for labels of pairs."""
    predictions = prediction_count(length - 2, run.data.masks.rate)
    inputs = random_inputs(encoder_config(run).vocab_size, rows, length, predictions)
    drawn = torch.Generator().manual_seed(1)
    return inputs._replace(
        draws_K=torch.randint(-(2**62), 2**62, inputs.positions_K.shape, generator=drawn),
        segment_ids_T=torch.zeros_like(inputs.input_ids_T),
        token_weights_T=torch.ones(len(inputs.input_ids_T)),
    )


def bench(name: str) -> None:
    """Measure both sides of a recipe."""
    layers, rows = CASES[name]
    run = recipe(name)
    run = replace(run, encoder=replace(run.encoder, layers=layers))
    config, generator, length = encoder_config(run), generator_config(run), run.data.sequence_length
    inputs = inputs_of(run, rows, length)
    predictions, tokens = len(inputs.positions_K), rows * length
    sizes = {"sequences": rows, "sequence_length": length, "predictions": predictions}
    more = detection_flops(config, generator, **sizes) / step_flops(config, **sizes)
    counts = LossCounts(predictions, tokens, 0)

    def step(model: Model) -> None:
        for parameter in model.parameters():
            parameter.grad = None
        loss_sum(model.parts, model(inputs), counts).backward()

    detector = ReplacedTokenModel(config, generator, weight=50.0, seed=0).train()
    masked = masked_language_model(run)
    found = in_turn({"electra": lambda: step(detector), "mlm": lambda: step(masked)}, ROUNDS)
    slower = ratio(found["electra"], found["mlm"])
    print(
        f"electra: {name}, {layers} layers, {rows} x {length} tokens, {predictions} predicted: "
        f"{slower.wall / more:.3f} of the predicted time by the clock, {slower.cpu / more:.3f} by "
        f"CPU seconds (FLOPs {more:.3f} x masked language modelling's), "
        f"{torch.get_num_threads()} threads, {len(found['mlm'])} rounds",
        flush=True,
    )


def main() -> None:
    parse(__doc__, threads=THREADS)
    for name in CASES:
        bench(name)


if __name__ == "__main__":
    main()

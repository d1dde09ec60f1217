"""A folder of a transformers model -> the settings that continue its pretraining on other text.

Sizes, dropout, vocabulary and heads are the folder's; rows and masks are those of its family's
recipe. The schedule is that of Gururangan et al. 2020, who continued RoBERTa-base on four domains.
Sources of the numbers; "recalled" marks those quoted from memory:

    table 13      Gururangan et al. 2020, hyperparameters of domain-adaptive pretraining: recalled
    sec. 3.1      the same paper: 12.5K steps, which are one pass over each domain: recalled
    trainer       transformers' Trainer, which its authors used: read
    family        the peak rate of the family's own pretraining, see its recipe
    ours          chosen by us, with the reason
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, replace

from model.hugging_face.families import ELECTRA
from pipeline.config.encoder_settings import EncoderSettings
from pipeline.config.run import Run
from pipeline.config.settings import override
from pipeline.config.training_settings import ObjectiveSettings
from pipeline.recipes import RECIPES, recipe
from pipeline.released.folder import BOUNDARIES, ReleasedModel

MOST_CONTINUED_PASSES = 10.0
"""Passes over the data, above which the text is learned by heart. Ours: masks are stored ten times;
Gururangan et al. 2020 made one pass."""
PEAK_RATES = {
    "roberta": 5e-4,  # table 13
    "bert": 1e-4,  # family
    "spanbert": 1e-4,  # family
    "albert": 1e-4,  # ours: BERT's; ALBERT was trained with LAMB, whose rates are not Adam's
    "electra": 2e-4,  # family: of base and large
    "modernbert": 3e-4,  # family: base's second phase, which continues the first
}
"""Family -> peak learning rate of AdamW at 2,048 sequences, of any size."""
WARM_UP = 0.06  # table 13: of the steps
FEW_STEPS = 500
"""Steps in ten passes; with fewer, a text is small. Ours: Adam needs hundreds of updates."""
# table 13, task-adaptive pretraining: 256 sequences; 1e-4, which is a fifth of 5e-4
SMALL_BATCH, SMALL_RATE = 256, 0.2


def continued_run(model: ReleasedModel, name: str) -> Run:
    """The run that continues a model; name: of the folder, for the run."""
    family = _family(model)
    base = recipe(f"{family}_base")
    encoder, vocabulary = model.encoder, model.vocabulary
    sizes = {key: value for key, value in asdict(encoder).items() if key != "vocab_size"}
    sizes["embedding_width"] %= encoder.width  # 0 stands for embeddings of that width
    length = min(base.data.sequence_length, encoder.positions)
    steps = 12_500  # sec. 3.1
    return replace(
        base,
        name=run_name(name),
        data=replace(
            base.data,
            sequence_length=length,
            tokenizer=vocabulary.kind,  # type: ignore[arg-type]
            lower_case=vocabulary.lower_case,
            vocab_size=encoder.vocab_size,
        ),
        encoder=EncoderSettings(**sizes, initializer=base.encoder.initializer),
        objective=_objective(base.objective, model),
        optimizer=replace(
            base.optimizer,
            kind="adamw",  # table 13
            peak_lr=PEAK_RATES[family],
            beta1=0.9,  # table 13
            beta2=0.98,  # table 13
            eps=1e-6,  # table 13
            weight_decay=0.01,  # table 13
            decay_vectors=False,  # trainer
            clip_norm=1.0,  # trainer max_grad_norm
            bias_correction=True,  # trainer
        ),
        schedule=replace(
            base.schedule,
            kind="linear",  # table 13
            warmup_steps=round(WARM_UP * steps),
            end_lr=0.0,  # table 13
        ),
        batch=replace(
            base.batch,
            sequences=2_048,  # table 13
            # ours: 16,384 tokens of base fill a GPU and fit in 16 GB; a wider model has half
            per_device=max(1, (16_384 if encoder.width <= 768 else 8_192) // length),
        ),
        steps=steps,
        phases=(),
        validation=replace(base.validation, every=500),  # ours: 25 points on the curve
        checkpoint=replace(base.checkpoint, every=500),  # ours: a failure loses 4 % of the run
    )


def within_passes(run: Run, changed: Sequence[str], rows: int) -> Run:
    """The run with no more steps than MOST_CONTINUED_PASSES over its data take, with a warm-up,
    validations and checkpoints that suit them, and in the small batches of a small text.

    changed: paths of settings that the user chose, which stay; rows: training rows of the data.
    """
    most = int(MOST_CONTINUED_PASSES * rows)
    # the user has chosen a schedule
    if "steps" in changed or run.epochs or run.batch.step_tokens or run.phases:
        return run
    if most >= run.steps * run.batch.sequences:
        return run
    found: dict[str, float] = {}
    batch = run.batch.sequences
    if most < FEW_STEPS * batch and not {"batch.sequences", "optimizer.peak_lr"} & {*changed}:
        batch = SMALL_BATCH
        found["batch.sequences"] = batch
        found["optimizer.peak_lr"] = run.optimizer.peak_lr * SMALL_RATE
    steps = max(1, most // batch)
    often = math.ceil(steps / 25)  # as often as in the 12,500 steps above
    found |= {
        "steps": steps,
        "schedule.warmup_steps": math.ceil(WARM_UP * steps),
        "validation.every": often,
    }
    if not run.checkpoint.keep_every:
        found["checkpoint.every"] = often
    kept = {path: value for path, value in found.items() if path not in changed}
    return override(run, [f"{path}={value}" for path, value in kept.items()])


def run_name(folder: str) -> str:
    """The name of a run that continues a folder: no recipe's, and that of a directory.

    ASCII, so that slurm/common.sh makes the same in any locale.
    """
    name = re.sub(r"[^\w.-]+", "-", folder, flags=re.ASCII).strip("-.") or "model"
    return f"{name}-continued" if name in RECIPES else name


def _family(model: ReleasedModel) -> str:
    """The family whose recipe has the rows and masks of a model."""
    if BOUNDARIES in model.heads:
        return "spanbert"
    return model.family.model_type


def _objective(base: ObjectiveSettings, model: ReleasedModel) -> ObjectiveSettings:
    """The objective of the family, with the generator that the folder has."""
    generator, encoder = model.generator, model.encoder
    if model.family is not ELECTRA or generator is None:
        return base
    shares = replace(
        base.generator,
        layers=generator.layers / encoder.layers,
        width=generator.width / encoder.width,
    )
    return replace(base, generator=shares)

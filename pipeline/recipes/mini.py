"""The mini recipes: a model of every family that a laptop trains, see MINI.md.

6 layers of width 320, a vocabulary of 8,192 and length 128, with AdamW in float32 at a batch of 16.
Sources of the numbers; "recalled" marks those quoted from memory:

    babyberta     Huebner et al. 2021, RoBERTa on 5 M words of child-directed speech: recalled
    table 9       Liu et al. 2019, table 9
    paper         Lan et al. 2020, table 1: recalled
    hf            transformers' BertConfig, read
    ours          chosen by us, with the reason
"""

from __future__ import annotations

from dataclasses import replace

from pipeline.config.run import Run
from pipeline.recipes.albert import albert_base
from pipeline.recipes.bert import bert_base
from pipeline.recipes.electra import as_electra
from pipeline.recipes.modernbert import modernbert_base
from pipeline.recipes.roberta import roberta_base, roberta_tiny
from pipeline.recipes.spanbert import as_spanbert


def roberta_mini() -> Run:
    """6 layers of width 320, 10 M parameters: hours on 2 CPU cores."""
    base, tiny = roberta_base(), roberta_tiny()
    return replace(
        base,
        name="roberta_mini",
        precision="fp32",
        data=replace(
            base.data,
            sequence_length=128,  # ours: a paragraph; attention costs little of the step
            vocab_size=8_192,  # babyberta
        ),
        encoder=replace(
            base.encoder,
            layers=6,  # ours: half of base; 10 M parameters with the words
            width=320,  # ours: five heads of 64
            heads=5,  # ours: as wide as in base
            feed_forward=1_280,  # ours: 4 x width as in base
            dropout=0.0,  # ours: hours on two cores are about one pass over 75 MB, no overfitting
            attention_dropout=0.0,  # ours: as above
            positions=128,  # ours: sequence_length
            initializer="normal_sinusoidal",  # ours: learns in half the steps, MINI.md
        ),
        optimizer=replace(
            base.optimizer,
            kind="adamw",
            peak_lr=8e-4,  # ours: see MINI.md
            beta2=0.98,  # ours: table 9's
        ),
        schedule=replace(base.schedule, warmup_steps=700),  # ours: see MINI.md
        batch=replace(tiny.batch, sequences=16, per_device=16),  # babyberta; ours: one micro-batch
        steps=14_000,  # ours: two hours on two cores at 0.51 s, measured; 1.2 passes over 75 MB
        spikes=tiny.spikes,
        validation=replace(base.validation, every=500),  # ours: 28 points on the curve
        checkpoint=replace(base.checkpoint, every=500),  # ours: a failure loses five minutes
    )


def bert_mini() -> Run:
    """6 layers of width 320, 10 M parameters: hours on 2 CPU cores."""
    base, mini = bert_base(), roberta_mini()
    return replace(
        mini,
        name="bert_mini",
        data=replace(
            base.data,
            sequence_length=128,  # ours: as RoBERTa-mini
            vocab_size=8_192,  # ours: as RoBERTa-mini
        ),
        encoder=replace(
            mini.encoder,
            layer_norm_eps=1e-12,  # hf
            position_offset=0,  # hf
            segment_types=2,  # hf
        ),
        objective=base.objective,
    )


def albert_mini() -> Run:
    """6 shared layers of width 320: hours on 2 CPU cores."""
    base, mini = albert_base(), bert_mini()
    return replace(
        mini,
        name="albert_mini",
        data=replace(
            base.data,
            sequence_length=128,  # ours: as bert_mini
            vocab_size=8_192,  # ours: as bert_mini
        ),
        encoder=replace(
            mini.encoder,
            embedding_width=128,  # paper table 1
            sharing="all",
            activation="gelu_tanh",
        ),
        objective=replace(
            base.objective,
            pair_weight=0.1,  # ours: as ALBERT-tiny, whose shared layer it would else dominate
        ),
    )


def electra_mini() -> Run:
    """6 layers of width 320, 10 M parameters: hours on 2 CPU cores."""
    run = as_electra(bert_mini(), "electra_mini", generator_width=0.4)  # ours: two heads of 64
    generator = replace(
        run.objective.generator,
        layers=0.5,  # ours: three layers, so that it costs a tenth of the encoder
    )
    return replace(run, objective=replace(run.objective, generator=generator))


def spanbert_mini() -> Run:
    """6 layers of width 320, 10 M parameters: hours on 2 CPU cores."""
    mini = bert_mini()
    run = as_spanbert(mini, "spanbert_mini")
    return replace(run, data=replace(run.data, vocab_size=mini.data.vocab_size))


def modernbert_mini() -> Run:
    """6 layers of width 320, 10 M parameters: hours on 2 CPU cores."""
    mini, base = roberta_mini(), modernbert_base()
    return replace(
        mini,
        name="modernbert_mini",
        encoder=replace(
            base.encoder,
            layers=mini.encoder.layers,
            width=mini.encoder.width,
            heads=mini.encoder.heads,
            feed_forward=848,  # ours: three matrices with the parameters of RoBERTa-mini's two
            dropout=0.0,  # ours: as RoBERTa-mini
            positions=128,  # ours: sequence_length
            window=32,  # ours: a quarter of a row, as 128 to the 512 of older models
        ),
    )

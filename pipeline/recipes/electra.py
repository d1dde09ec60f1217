"""ELECTRA (Clark et al. 2020): a small generator replaces tokens, the encoder detects them.

`electra_small`, `_base` and `_large` train with LAMB at a batch of 8,192. Their `_published` twins
use the paper's Adam and schedule, and draw masks anew in each epoch, as the original does in its
graph. Export keeps the discriminator.
Sources of the numbers; "recalled" marks those quoted from memory:

    electra       google-research/electra's configure_pretraining.py, run_pretraining.py,
                  util/training_utils.py, model/modeling.py, model/optimization.py,
                  pretrain/pretrain_helpers.py and build_pretraining_dataset.py, read
    table 6       Clark et al. 2020, table 6, for steps: recalled; the rest of it is in electra
    hf            configurations of ELECTRA's folders on the Hugging Face hub, read
    ours          chosen by us, with the reason

LAMB's numbers are RoBERTa's, extrapolated: You et al. trained BERT. The small model has length 128.
The released one trained at length 512 for 4M steps, with a generator of the same width:
--set data.sequence_length=512 --set objective.generator.width=1.
"""

from __future__ import annotations

from dataclasses import replace

from pipeline.config.data_settings import DataSettings
from pipeline.config.run import Run
from pipeline.config.training_settings import GeneratorSettings, ObjectiveSettings
from pipeline.recipes.bert import bert_base, bert_large, bert_tiny, with_adam


def electra_base() -> Run:
    """ELECTRA-base, uncased, LAMB at a batch of 8,192 (extrapolated)."""
    return as_electra(bert_base(), "electra_base", generator_width=1 / 3)  # electra, base: 0.33333


def electra_large() -> Run:
    """ELECTRA-large, uncased, LAMB at a batch of 8,192 (extrapolated)."""
    run = as_electra(bert_large(), "electra_large", generator_width=1 / 4)  # electra's default
    return replace(
        run,
        data=replace(
            run.data,
            masks=replace(run.data.masks, rate=0.25),  # electra mask_prob of large
        ),
        batch=replace(run.batch, per_device=32),  # ours: half of BERT-large's, two networks
    )


def electra_small() -> Run:
    """ELECTRA-small, uncased, LAMB at a batch of 8,192 (extrapolated)."""
    run = electra_base()
    return replace(
        run,
        name="electra_small",
        data=replace(run.data, sequence_length=128),  # electra max_seq_length of small
        encoder=replace(
            run.encoder,
            layers=12,  # electra training_utils.py
            width=256,  # electra training_utils.py
            embedding_width=128,  # electra embedding_size of small
            heads=4,  # electra training_utils.py: width / 64
            feed_forward=1_024,  # electra training_utils.py: 4 x width
        ),
        objective=_objective(run, generator_width=1 / 4),  # electra generator_hidden_size
        batch=replace(run.batch, per_device=512),  # ours: short rows of a small model
    )


def electra_tiny() -> Run:
    """2 layers of width 128, trained in minutes on 2 CPU cores, for tests."""
    # With half the width, one head and embeddings of 64, the generator had learned little more
    # than word frequencies after 1,000 steps.
    run = as_electra(with_adam(bert_tiny()), "electra_tiny", generator_width=1.0)  # ours: see above
    generator = replace(
        run.objective.generator,
        layers=0.5,  # ours: one layer is faster than two and predicts as well
    )
    return replace(run, objective=replace(run.objective, generator=generator))


def electra_base_published() -> Run:
    """ELECTRA-base with the paper's Adam: 256 x 766K steps."""
    return _published(
        electra_base(),
        sequences=256,  # electra train_batch_size of base
        peak_lr=2e-4,  # electra learning_rate of base
        steps=766_000,  # table 6
    )


def electra_large_published() -> Run:
    """ELECTRA-large with the paper's Adam: 2,048 x 400K steps."""
    return _published(
        electra_large(),
        sequences=2_048,  # electra train_batch_size of large
        peak_lr=2e-4,  # electra learning_rate of large
        steps=400_000,  # table 6: ELECTRA-400K
    )


def electra_small_published() -> Run:
    """ELECTRA-small with the paper's Adam: 128 x 1M steps."""
    return _published(
        electra_small(),
        sequences=128,  # electra train_batch_size
        peak_lr=5e-4,  # electra learning_rate
        steps=1_000_000,  # electra num_train_steps
    )


def electra_tiny_published() -> Run:
    """ELECTRA-tiny with the paper's Adam (the paper has no such size)."""
    tiny, adam = electra_tiny(), electra_base_published().optimizer
    return replace(
        tiny,
        name="electra_tiny_published",
        encoder=replace(tiny.encoder, initializer="truncated_normal_glorot"),  # electra, as above
        data=_drawn_anew(tiny.data),
        optimizer=replace(adam, peak_lr=1e-3),  # ours: RoBERTa-tiny's
    )


def as_electra(bert: Run, name: str, generator_width: float) -> Run:
    """A BERT with replaced token detection, on ELECTRA's segments and masks."""
    return replace(
        bert,
        name=name,
        data=replace(
            bert.data,
            segments=replace(
                bert.data.segments,
                label="none",  # electra: no loss on the segment pair
                short_share=0.05,  # electra build_pretraining_dataset.py
                single_share=0.1,  # electra build_pretraining_dataset.py
            ),
            masking="electra",
            masks=replace(
                bert.data.masks,
                rate=0.15,  # electra mask_prob
                mask_share=0.85,  # electra pretrain_helpers.py
                random_share=0.0,  # electra pretrain_helpers.py: the others are kept
            ),
        ),
        objective=_objective(bert, generator_width),
    )


def _objective(run: Run, generator_width: float) -> ObjectiveSettings:
    # The generator's tokens are samples, as in the paper (sec. 2) and in electra. A generator that
    # puts in "the likeliest word", as ELECTRA is often explained, is another method.
    return replace(
        run.objective,
        kind="rtd",
        detection_weight=50.0,  # electra disc_weight
        generator=GeneratorSettings(
            layers=1.0,  # electra generator_layers
            width=generator_width,
            tied=False,  # electra untied_generator
            embeddings="shared",  # electra untied_generator_embeddings
        ),
    )


def _drawn_anew(data: DataSettings) -> DataSettings:
    return replace(
        data,
        mask_mode="per-epoch",  # electra pretrain_helpers.py masks in the graph
        duplicates=0,  # per-epoch: none are stored
    )


def _published(ours: Run, sequences: int, peak_lr: float, steps: int) -> Run:
    return replace(
        ours,
        name=f"{ours.name}_published",
        encoder=replace(
            ours.encoder,
            attention_dropout=0.1,  # electra modeling.py attention_probs_dropout_prob
            # electra modeling.py and run_pretraining.py: two layers have tf.layers.dense's own law
            initializer="truncated_normal_glorot",
        ),
        data=_drawn_anew(ours.data),
        optimizer=replace(
            ours.optimizer,
            kind="adamw",
            peak_lr=peak_lr,
            beta1=0.9,  # electra optimization.py
            beta2=0.999,  # electra optimization.py
            eps=1e-6,  # electra optimization.py
            weight_decay=0.01,  # electra weight_decay_rate
            decay_vectors=False,  # electra exclude_from_weight_decay
            clip_norm=1.0,  # electra clip_by_global_norm
            bias_correction=False,  # electra AdamWeightDecayOptimizer
        ),
        schedule=replace(
            ours.schedule,
            kind="linear_times_warmup",  # electra optimization.py
            warmup_steps=10_000,  # electra num_warmup_steps
            end_lr=0.0,  # electra end_learning_rate
        ),
        batch=replace(ours.batch, sequences=sequences),
        steps=steps,
    )

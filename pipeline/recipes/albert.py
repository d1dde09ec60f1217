"""ALBERT (Lan et al. 2020): BERT's pairs, weights shared by all layers, factorized embeddings.

Words are masked in n-grams, and the model predicts whether two adjacent segments are swapped (SOP).
Version 2 (the names without `_v1`) has no dropout and GELU by tanh, and trains with LAMB at a batch
of 8,192; the released one trained at 4,096 for 10M steps (xxlarge: 3M) on more data. Version 1 is
the paper's, with its own LAMB, batch and steps, and its 40 draws of the masks. Sources of the
numbers; "recalled" marks those quoted from memory:

    paper         Lan et al. 2020, sec. 4.1 and table 1: recalled
    albert        google-research/albert's README, optimization.py, lamb_optimizer.py,
                  run_pretraining.py and create_pretraining_data.py, read
    hub           the config.json of albert-*-v1 and albert-*-v2 on the Hugging Face hub: recalled
    scaled        albert's 0.00176 at 4,096 by You et al.'s square-root rule
    ours          chosen by us, with the reason
"""

from __future__ import annotations

from dataclasses import replace

from pipeline.config.run import Run
from pipeline.recipes.bert import bert_base, bert_tiny, with_adam


def albert_base() -> Run:
    """ALBERT-base, version 2, LAMB at a batch of 8,192."""
    base = bert_base()
    return replace(
        base,
        name="albert_base",
        data=replace(
            base.data,
            segments=replace(
                base.data.segments,
                label="order",
                short_share=0.1,  # albert short_seq_prob
            ),
            masking="ngram",
            masks=replace(base.data.masks, max_ngram=3),  # albert ngram
            tokenizer="unigram",
            lower_case=True,
            vocab_size=30_000,  # hub
        ),
        encoder=replace(
            base.encoder,
            embedding_width=128,  # paper table 1
            sharing="all",
            groups=1,  # hub num_hidden_groups
            activation="gelu_tanh",
            dropout=0.0,  # albert README: version 2 has none
            attention_dropout=0.0,  # hub attention_probs_dropout_prob
            layer_norm_eps=1e-12,  # hub
        ),
        optimizer=replace(base.optimizer, peak_lr=2.5e-3),  # scaled
    )


def albert_large() -> Run:
    """ALBERT-large, version 2, LAMB at a batch of 8,192."""
    return _sized(albert_base(), "large", 24, 1_024, 16, 64)  # paper table 1; ours: memory


def albert_xlarge() -> Run:
    """ALBERT-xlarge, version 2, LAMB at a batch of 8,192."""
    # hub and the released albert_config.json: 16 heads; the paper's rule, width / 64, gives 32
    return _sized(albert_base(), "xlarge", 24, 2_048, 16, 32)  # paper table 1; see above; memory


def albert_xxlarge() -> Run:
    """ALBERT-xxlarge, version 2, LAMB at a batch of 8,192."""
    return _sized(albert_base(), "xxlarge", 12, 4_096, 64, 16)  # paper table 1; ours: memory


def albert_tiny() -> Run:
    """2 layers of width 128, shared weights, trained in minutes on 2 CPUs."""
    base, tiny = albert_base(), with_adam(bert_tiny())
    return replace(
        tiny,
        name="albert_tiny",
        data=replace(
            base.data,
            sequence_length=32,  # ours: as bert_tiny
            vocab_size=2_048,  # ours: as bert_tiny
        ),
        encoder=replace(
            tiny.encoder,
            embedding_width=64,  # ours: half of the width
            sharing="all",
            activation="gelu_tanh",
        ),
        objective=replace(
            base.objective,
            # Sentence order is learned in 200 steps; its gradient in the shared layer is then four
            # times that of mlm. After 1,000 steps the mlm loss is 5.87 nats, and 6.10 at weight 1.
            pair_weight=0.1,  # ours: 1 in base
        ),
        steps=4_800,  # ours: twice BERT-tiny's, since one shared layer predicts n-grams
    )


def albert_base_v1_published() -> Run:
    """ALBERT-base, version 1, with the paper's LAMB: 4,096 x 125K steps."""
    return _as_published(albert_base(), 0.1)  # hub


def albert_large_v1_published() -> Run:
    """ALBERT-large, version 1, with the paper's LAMB: 4,096 x 125K steps."""
    return _as_published(albert_large(), 0.1)  # hub


def albert_xlarge_v1_published() -> Run:
    """ALBERT-xlarge, version 1, with the paper's LAMB: 4,096 x 125K steps."""
    return _as_published(albert_xlarge(), 0.1)  # hub


def albert_xxlarge_v1_published() -> Run:
    """ALBERT-xxlarge, version 1, with the paper's LAMB: 4,096 x 125K steps."""
    return _as_published(albert_xxlarge(), 0.0)  # hub: this size alone has none


def _sized(base: Run, size: str, layers: int, width: int, heads: int, per_device: int) -> Run:
    return replace(
        base,
        name=f"albert_{size}",
        encoder=replace(
            base.encoder,
            layers=layers,
            width=width,
            heads=heads,
            feed_forward=4 * width,  # paper 4.1
        ),
        batch=replace(base.batch, per_device=per_device),
    )


def _as_published(version_2: Run, dropout: float) -> Run:
    """Version 1 of a model, trained as in the paper."""
    return replace(
        version_2,
        name=f"{version_2.name}_v1_published",
        data=replace(
            version_2.data,
            duplicates=40,  # albert create_pretraining_data.py dupe_factor
        ),
        encoder=replace(
            version_2.encoder,
            # hub: "gelu", which transformers reads as the exact form. The released code has the
            # tanh form alone (albert modeling.py), so version 1, too, was trained with it:
            # --set encoder.activation=gelu_tanh
            activation="gelu",
            dropout=dropout,
            attention_dropout=dropout,
            initializer="truncated_normal",  # albert create_initializer
        ),
        optimizer=replace(
            version_2.optimizer,
            lamb_variant="albert",
            peak_lr=1.76e-3,  # albert README
            beta1=0.9,  # albert LAMB
            beta2=0.999,  # albert LAMB
            eps=1e-6,  # albert LAMB
            weight_decay=0.01,  # albert LAMB
            clip_norm=1.0,  # albert clip_by_global_norm
        ),
        schedule=replace(
            version_2.schedule,
            kind="linear_from_start",  # albert optimization.py
            warmup_steps=3_125,  # albert README
            end_lr=0.0,  # albert polynomial_decay
        ),
        batch=replace(version_2.batch, sequences=4_096),  # albert README
        steps=125_000,  # albert README
    )

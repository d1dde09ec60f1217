"""BabyLM (ten or a hundred million words, ten passes): ModernBERT's layers, LAMB at 256 x 128.

Shapes for the corpora of the BabyLM challenge, whose rules since 2025 allow ten passes. **Rate,
batch, warm-up and masks are published ones for other layers, and not yet tuned here**: the nearest
published run is `amlm`, with ten passes, a batch of 256 and LAMB. LTG-BERT, GPT-BERT and AMLM, the
masked models that led their years, train with LAMB; of entries with AdamW, no pair of runs that
differ in the optimizer only is known. To try it: `--set optimizer.kind=adamw --set
optimizer.peak_lr=1e-3`. Sources of the numbers; "recalled" marks those quoted from memory:

    gpt-bert      Charpentier & Samuel 2024: ltgoslo/gpt-bert's configs/small.json and base.json,
                  pretraining/train_10m.py, train_100m.py and model.py, read
    amlm          Edman & Fraser 2025: serdardoesml/babylm25's train_mask.py and README, read
    ltg-bert      Samuel et al. 2023: ltgoslo/ltg-bert's babylm/configs, read
    modern        as in modernbert.py
    ours          chosen by us, with the reason

GPT-BERT's and LTG-BERT's norms inside of layers, gates and disentangled positions have no setting.
"""

from __future__ import annotations

from dataclasses import replace

from pipeline.config.run import Run
from pipeline.recipes.modernbert import modernbert_base


def babylm_small() -> Run:
    """12 layers of width 384 for ten million words: minutes on a GPU."""
    base = modernbert_base()
    return replace(
        base,
        name="babylm_small",
        data=replace(
            base.data,
            sequence_length=128,  # gpt-bert seq_length
            masks=replace(base.data.masks, rate=0.3),  # gpt-bert mask_p_start, falls to 0.15 there
            duplicates=10,  # ours: one for each of the ten passes
            vocab_size=8_192,  # gpt-bert small vocab_size
        ),
        encoder=replace(
            base.encoder,
            layers=12,  # gpt-bert small num_hidden_layers
            width=384,  # gpt-bert small hidden_size
            heads=6,  # gpt-bert small num_attention_heads
            feed_forward=1_280,  # gpt-bert small intermediate_size
            dropout=0.1,  # gpt-bert hidden_dropout_prob
            attention_dropout=0.1,  # gpt-bert attention_probs_dropout_prob
            dropout_places="all",  # gpt-bert; ModernBERT's one place is for text read once
            positions=512,  # gpt-bert max_position_embeddings; longer rows of fine-tuning
            initializer_range=0.0323,  # gpt-bert: sqrt(2 / (5 x width))
            window=0,  # ours: rows of 128 are as long as ModernBERT's window
            global_every=1,  # ours: without a window, the only value
        ),
        optimizer=replace(
            base.optimizer,
            kind="lamb",  # gpt-bert, ltg-bert, amlm
            peak_lr=7e-3,  # amlm lr, at this batch
            beta2=0.98,  # gpt-bert optimizer_beta2; amlm betas
            eps=1e-8,  # gpt-bert optimizer_eps; amlm eps
            weight_decay=0.1,  # gpt-bert weight_decay; amlm
            clip_norm=1.0,  # amlm max_norm
        ),
        schedule=replace(
            base.schedule,
            kind="cosine",  # amlm, gpt-bert
            warmup_steps=48,  # amlm: total_steps // 100
        ),
        batch=replace(
            base.batch,
            sequences=256,  # amlm batch_size
            per_device=256,  # ours: one micro-batch; about 8.5 GB, computed by `plan`
        ),
        steps=4_800,  # ours: ten passes at 1.55 tokens per word, estimated; `epochs` decides
        epochs=10.0,  # BabyLM's rules since 2025
        validation=replace(base.validation, every=200),  # ours: 24 points on the curve
        checkpoint=replace(base.checkpoint, every=200),  # ours: a failure loses seconds
    )


def babylm_base() -> Run:
    """12 layers of width 768 for a hundred million words: an hour on a GPU."""
    small = babylm_small()
    return replace(
        small,
        name="babylm_base",
        data=replace(small.data, vocab_size=16_384),  # gpt-bert base vocab_size
        encoder=replace(
            small.encoder,
            width=768,  # gpt-bert base hidden_size
            heads=12,  # gpt-bert base num_attention_heads
            feed_forward=2_560,  # gpt-bert base intermediate_size
            initializer_range=0.0228,  # gpt-bert: sqrt(2 / (5 x width))
        ),
        optimizer=replace(
            small.optimizer,
            peak_lr=5e-3,  # ours: small's x 1e-2 / 1.41e-2, as of gpt-bert's base and small
        ),
        schedule=replace(small.schedule, warmup_steps=450),  # amlm: total_steps // 100
        batch=replace(small.batch, per_device=128),  # ours: about 10 GB, computed by `plan`
        steps=45_000,  # ours: ten passes at 1.45 tokens per word, estimated; `epochs` decides
        validation=replace(small.validation, every=1_000),  # ours: 45 points on the curve
        checkpoint=replace(small.checkpoint, every=1_000),  # ours: a failure loses two minutes
    )

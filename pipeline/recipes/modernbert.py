"""ModernBERT (Warner et al. 2024): rotary positions, windows, gated GELU, no biases, 30 % of masks.

`modernbert_base` and `_large` train with LAMB at 8,192 rows of 1,024 tokens. Their `_published`
twins are the first of the three phases of the released models; README.md has the commands that fork
the other two from it, whose rates, lengths and wavelengths differ.
Sources of the numbers; "recalled" marks those quoted from memory:

    modern        AnswerDotAI/ModernBERT's yamls, src/bert_layers/initialization.py,
                  src/bert_layers/model.py, src/optimizer.py and src/sequence_packer.py, read
    hf            transformers' ModernBertConfig and the folders on the Hugging Face hub, read
    ours          chosen by us, with the reason

LAMB's numbers are RoBERTa's, extrapolated: You et al. trained BERT, at 512 tokens. The originals
pack documents into rows by best fit; here a row holds the next sentences and cuts a document at its
end. Each document sees itself alone in both.
"""

from __future__ import annotations

from dataclasses import replace

from pipeline.config.run import Run
from pipeline.recipes.roberta import roberta_base, roberta_tiny


def modernbert_base() -> Run:
    """ModernBERT-base, LAMB at 8,192 x 1,024 (extrapolated)."""
    base = roberta_base()
    return replace(
        base,
        name="modernbert_base",
        data=replace(
            base.data,
            sequence_length=1_024,  # modern max_seq_len of the first phase
            masks=replace(base.data.masks, rate=0.3),  # modern mlm_probability
            vocab_size=50_368,  # hf vocab_size
        ),
        encoder=replace(
            base.encoder,
            layers=22,  # modern num_hidden_layers
            width=768,  # modern hidden_size
            heads=12,  # modern num_attention_heads
            feed_forward=1_152,  # modern intermediate_size
            dropout=0.1,  # modern attn_out_dropout_prob
            attention_dropout=0.0,  # modern attention_probs_dropout_prob
            layer_norm_eps=1e-5,  # hf norm_eps
            positions=8_192,  # hf max_position_embeddings; later phases use them
            position_offset=0,  # rotary positions have no table
            segment_types=1,  # hf: none
            initializer="megatron",  # modern init_method: full_megatron
            norm="pre",  # modern, normalization before each part
            gated=True,  # modern mlp_layer: glu
            biases=False,  # modern
            position_kind="rotary",  # modern
            rotary_base=10_000.0,  # modern rotary_emb_base of the first phase
            local_rotary_base=10_000.0,  # modern local_attn_rotary_emb_base: that one
            window=128,  # modern sliding_window
            global_every=3,  # modern global_attn_every_n_layers
            dropout_places="attention_output",  # modern, the only dropout above 0
        ),
        batch=replace(
            base.batch,
            per_device=64,  # ours: as many tokens as RoBERTa-base
            attention="document",  # modern, packed documents do not see each other
        ),
        validation=replace(
            base.validation,
            mask_rate=0.15,  # modern eval_loader mlm_probability
        ),
    )


def modernbert_large() -> Run:
    """ModernBERT-large, LAMB at 8,192 x 1,024 (extrapolated)."""
    base = modernbert_base()
    return replace(
        base,
        name="modernbert_large",
        encoder=replace(
            base.encoder,
            layers=28,  # modern num_hidden_layers
            width=1_024,  # modern hidden_size
            heads=16,  # modern num_attention_heads
            feed_forward=2_624,  # modern intermediate_size
        ),
        batch=replace(base.batch, per_device=32),  # ours: as many tokens as RoBERTa-large
    )


def modernbert_base_published() -> Run:
    """ModernBERT-base's first phase, StableAdamW: 4,608 x 375K steps."""
    return _published(
        modernbert_base(),
        peak_lr=8e-4,  # modern lr
        sequences=4_608,  # modern global_train_batch_size
        first_sequences=768,  # modern batch_size_warmup_min_size
        batch_tokens=50e9,  # modern batch_size_warmup_tokens
        warmup_tokens=3e9,  # modern t_warmup
    )


def modernbert_large_published() -> Run:
    """ModernBERT-large's first phase, StableAdamW: 4,928 x 343K steps."""
    return _published(
        modernbert_large(),
        peak_lr=5e-4,  # modern lr; the paper went back to 5e-5 after 900 B tokens
        sequences=4_928,  # modern global_train_batch_size
        first_sequences=448,  # modern batch_size_warmup_min_size
        batch_tokens=10e9,  # modern batch_size_warmup_tokens
        warmup_tokens=2e9,  # modern t_warmup
    )


def _published(
    ours: Run,
    *,
    peak_lr: float,
    sequences: int,
    first_sequences: int,
    batch_tokens: float,
    warmup_tokens: float,
) -> Run:
    """batch_tokens: while the batch grows, each size as long as any other; warmup_tokens: of the
    learning rate's."""
    length, tokens = ours.data.sequence_length, 1.719e12  # modern max_duration
    sizes = range(first_sequences, sequences, first_sequences)
    growing = batch_tokens / length / sum(sizes) * len(sizes)
    return replace(
        ours,
        name=f"{ours.name}_published",
        optimizer=replace(
            ours.optimizer,
            kind="stable_adamw",
            peak_lr=peak_lr,
            beta1=0.9,  # modern betas
            beta2=0.98,  # modern betas
            eps=1e-6,  # modern eps
            weight_decay=1e-5 / peak_lr,  # modern: 1e-5, not multiplied by the learning rate
            decay_vectors=False,  # modern filter_bias_norm_wd
            clip_norm=0.0,  # modern: StableAdamW limits each update by itself
        ),
        schedule=replace(
            ours.schedule,
            kind="constant",  # modern: trapezoid, whose decay is the third phase
            warmup_steps=_steps(warmup_tokens / length, sizes, growing),
        ),
        batch=replace(
            ours.batch,
            sequences=sequences,
            warmup_steps=int(growing),
            first_sequences=first_sequences,
        ),
        steps=int(growing + (tokens - batch_tokens) / length / sequences),
    )


def _steps(read: float, sizes: range, growing: float) -> int:
    """Steps until this many sequences are read, while the batch grows."""
    each = growing / len(sizes)
    for passed, size in enumerate(sizes):
        if read <= size * each:
            return round(passed * each + read / size)
        read -= size * each
    raise ValueError("the learning rate rises for longer than the batch grows")


def modernbert_tiny() -> Run:
    """4 layers of width 128, trained in minutes on 2 CPU cores, for tests."""
    tiny, base = roberta_tiny(), modernbert_base()
    return replace(
        tiny,
        name="modernbert_tiny",
        encoder=replace(
            base.encoder,
            layers=4,  # ours: the second layer without a window is the last
            width=128,  # ours: two heads of 64
            heads=2,  # ours: as wide as in base
            feed_forward=192,  # ours: 1.5 x width as in base
            dropout=0.0,  # ours: under five epochs, too few to overfit
            positions=32,  # ours: sequence_length
            window=16,  # ours: half of a row
        ),
        batch=replace(tiny.batch, attention="document"),
        validation=replace(tiny.validation, mask_rate=0.0),  # ours: the training's
    )

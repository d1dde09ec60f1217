"""RoBERTa (Liu et al. 2019): full sentences, byte-level BPE, masked language modelling alone.

`roberta_base` and `roberta_large` train with LAMB at a batch of 8,192. Their `_published` twins use
the paper's Adam and schedule, on the same shards (so with ten stored masks, where the paper drew
new ones). Sources of the numbers; "recalled" marks those quoted from memory:

    table 3       Liu et al. 2019, table 3, batch sizes: recalled; it has no warm-up
    table 4       Liu et al. 2019, table 4, longer training: recalled
    table 9       Liu et al. 2019, table 9; base column from a public config that copies it, large
                  column from roberta-large's model card on the Hugging Face hub
    fairseq       its examples/roberta/config/pretraining/base.yaml, models/roberta/model.py and
                  modules/transformer_sentence_encoder.py, read
    hf            transformers' conversion script for fairseq's RoBERTa, read
    You et al.    LAMB, 2020, untuned BERT, the row for batch 8K: recalled. Its square-root rule
                  gives ALBERT's 0.00176 at 4,096 x 125K, which was read
    albert        google-research/albert's optimization.py, run_pretraining.py and
                  create_pretraining_data.py, read
    bert          google-research/bert's create_pretraining_data.py, read
    electra       google-research/electra's build_pretraining_dataset.py and
                  configure_pretraining.py, read
    spanbert      the command in facebookresearch/SpanBERT's pretraining README, read; its code
                  has a different default span_p
    palm          Chowdhery et al. 2022, sec. 5.1, for spikes: recalled
    extrapolated  used beyond what the source measured: You et al. trained BERT, mostly at 128
    ours          chosen by us, with the reason
"""

from __future__ import annotations

from dataclasses import replace

from pipeline.config.data_settings import DataSettings, MaskSettings, SegmentSettings
from pipeline.config.encoder_settings import EncoderSettings
from pipeline.config.run import Run
from pipeline.config.training_settings import (
    BatchSettings,
    CheckpointSettings,
    GeneratorSettings,
    LoggingSettings,
    ObjectiveSettings,
    OptimizerSettings,
    ScheduleSettings,
    SpikeSettings,
    ValidationSettings,
)


def roberta_base() -> Run:
    """RoBERTa-base, LAMB at a batch of 8,192 (extrapolated)."""
    return Run(
        name="roberta_base",
        seed=0,  # ours: any
        precision="bf16",  # ours: needs no loss scaling, where fairseq's fp16 does
        data=DataSettings(
            format="full_sentences",
            segments=segment_settings(),
            sequence_length=512,  # fairseq tokens_per_sample
            masking="token",
            # fairseq draws masks anew in each epoch (mask_mode="per-epoch").
            mask_mode="duplicates",
            duplicates=10,  # Liu et al. 2019, sec. 4.1: ten ways of masking, recalled
            masks=masks(),
            tokenizer="byte-bpe",
            lower_case=False,
            vocab_size=50_265,  # transformers' RobertaConfig, read
            seed=0,  # ours: any
            validation_fraction=0.005,  # ours: 1/200, enough for a steady loss on a useful corpus
            order="global",
            reader="mmap",
            damaged="stop",  # ours: a loss of data should be noticed
        ),
        encoder=_encoder(),
        objective=objective_settings(),
        optimizer=_lamb(),
        schedule=ScheduleSettings(
            kind="linear",
            warmup_steps=3_125,  # You et al. 8K: 1/20 of the steps, recalled; extrapolated
            end_lr=0.0,  # albert polynomial_decay
            power=1.0,  # albert polynomial_decay; linear has no other
            decay_steps=0,  # only for warmup_stable_decay
            decay_shape="power",
        ),
        batch=BatchSettings(
            sequences=8_192,  # You et al. 8K, and table 9
            step_tokens=0,  # ours: rows are full; for the formats whose rows are short
            per_device=128,  # ours: about 26 GB, computed
            attention="row",  # fairseq: documents of a block see each other
            warmup_steps=0,  # table 9: none
            first_sequences=256,  # ours: for --set batch.warmup_steps; BERT's batch
            order_window=16,  # ours: 16,384 rows, two batches, mix in data.order=blocks
            mixture=(),
            mixture_exponent=1.0,  # ours: every sequence equally often
            mixture_over="corpora",
            corpora=(),
        ),
        steps=62_500,  # You et al. 8K, recalled; extrapolated
        epochs=0.0,  # ours: steps are given
        phases=(),
        spikes=_spikes(),
        # Some sixty points on the curves; of Zorro's 12 paradigms, a standard error of 1 %.
        validation=ValidationSettings(
            every=1_000,  # ours
            grammar="",
            grammar_pairs=200,  # ours
            mask_rate=0.0,  # the shards'
        ),
        checkpoint=_checkpoint(),
        logging=_logging(),
    )


def masks() -> MaskSettings:
    """Token masks, and the lengths for masking=ngram and masking=span."""
    return MaskSettings(
        rate=0.15,  # Devlin et al. 2019, sec. 3.1, recalled
        mask_share=0.8,  # Devlin et al. 2019, sec. 3.1, recalled
        random_share=0.1,  # Devlin et al. 2019, sec. 3.1, recalled
        max_ngram=3,  # albert create_pretraining_data.py, for masking=ngram
        span_p=0.2,  # spanbert, for masking=span
        max_span=10,  # spanbert, for masking=span
        random_ids="uniform",  # bert create_pretraining_data.py
    )


def segment_settings() -> SegmentSettings:
    """Values for `--set data.format`; full_sentences reads none of them."""
    return SegmentSettings(
        label="none",  # Liu et al. 2019, sec. 4.2: their final model has no NSP, recalled
        short_share=0.1,  # bert short_seq_prob
        single_share=0.0,  # bert: none; electra has 0.1
        draws=1,  # ours: each epoch reads the text once; bert dupe_factor: ten
    )


def objective_settings() -> ObjectiveSettings:
    """Masked words alone; the other values are for `--set objective.kind`."""
    filler = GeneratorSettings(layers=1.0, width=0.25, tied=False, embeddings="shared")  # electra
    return ObjectiveSettings(
        kind="mlm",
        pair_weight=1.0,  # bert: the sum of two losses
        boundary_weight=1.0,  # spanbert --pair-loss-weight
        detection_weight=50.0,  # electra disc_weight
        words_weight=1.0,  # ours: both predict words; the paper names none
        generator=filler,
    )


def _encoder() -> EncoderSettings:
    """RoBERTa-base's."""
    return EncoderSettings(
        layers=12,  # fairseq base_architecture
        width=768,  # fairseq base_architecture
        embedding_width=0,  # fairseq base_architecture: width
        heads=12,  # fairseq base_architecture
        feed_forward=3_072,  # fairseq base_architecture
        sharing="none",
        groups=1,  # none are shared
        # The Transformer of Vaswani et al. 2017, which lecture notes often show for BERT, has
        # ReLU and sinusoidal positions; no model here has either.
        activation="gelu",
        dropout=0.1,  # fairseq dropout
        attention_dropout=0.0,  # ours: faster; none in MosaicBERT and ModernBERT; fairseq: 0.1
        layer_norm_eps=1e-5,  # hf, PyTorch's default that fairseq uses
        positions=512,  # fairseq max_positions
        position_offset=2,  # fairseq padding_idx + 1; hf: 514 rows
        segment_types=1,  # hf type_vocab_size
        initializer_range=0.02,  # fairseq init_bert_params
        initializer="normal",  # fairseq init_bert_params: normal_, not truncated
        norm="post",  # fairseq base_architecture: encoder_normalize_before is off
        gated=False,
        biases=True,
        position_kind="learned",  # fairseq encoder_learned_pos
        rotary_base=10_000.0,  # ours: for position_kind=rotary; Su et al. 2021
        local_rotary_base=10_000.0,  # ours: for encoder.window
        window=0,  # all tokens of a row see each other
        global_every=1,  # ours: without a window, the only value
        dropout_places="all",
    )


def _lamb() -> OptimizerSettings:
    """LAMB of You et al. at a batch of 8,192."""
    return OptimizerSettings(
        kind="lamb",
        lamb_variant="paper",
        peak_lr=2.5e-3,  # You et al. 8K: 5 / (2**1 x 1e3), recalled; extrapolated
        beta1=0.9,  # albert LAMB
        beta2=0.999,  # albert LAMB
        eps=1e-6,  # albert LAMB
        weight_decay=0.01,  # albert LAMB
        decay_vectors=False,  # albert exclude_from_weight_decay
        adapt_vectors=False,  # albert exclude_from_layer_adaptation: the same ones
        clip_norm=1.0,  # albert clip_by_global_norm
        bias_correction=True,  # You et al., algorithm 2
    )


def _spikes() -> SpikeSettings:
    """Detection is off; the other values apply when it is turned on."""
    return SpikeSettings(
        deviations=0.0,  # ours: off, as in every source; try 10, which noise does not reach
        window=128,  # ours: long enough to average noise, short against the loss's fall
        rollbacks=0,  # ours: off
        skip_before=100,  # palm: about 100 steps before the spike
        skip_after=200,  # palm: 200 to 500 batches in all
    )


def _checkpoint() -> CheckpointSettings:
    """Often enough that a failure loses little work."""
    return CheckpointSettings(
        every=1_000,  # ours: under an hour of eight H100s, estimated
        keep=3,  # ours: two more to fall back on
        keep_every=0,  # ours: history costs disk, so it is opt-in
        at_words="",  # ours: as above
        exportable=True,  # ours: a model is trained to be used
    )


def _logging() -> LoggingSettings:
    """Often enough to watch a run."""
    return LoggingSettings(
        every=10,  # ours: one line every few seconds to a minute
        hang_seconds=900,  # ours: above any compilation and any stall of a file server
        to=("tensorboard",),  # ours: it needs no account
    )


def roberta_large() -> Run:
    """RoBERTa-large, LAMB at a batch of 8,192 (extrapolated)."""
    base = roberta_base()
    return replace(
        base,
        name="roberta_large",
        encoder=replace(
            base.encoder,
            layers=24,  # fairseq roberta_large_architecture
            width=1_024,  # fairseq roberta_large_architecture
            heads=16,  # fairseq roberta_large_architecture
            feed_forward=4_096,  # fairseq roberta_large_architecture
        ),
        batch=replace(base.batch, per_device=64),  # ours: about 36 GB, computed
    )


def roberta_tiny() -> Run:
    """2 layers of width 128, trained in minutes on 2 CPU cores, for tests."""
    base = roberta_base()
    return replace(
        base,
        name="roberta_tiny",
        precision="fp32",
        data=replace(
            base.data,
            sequence_length=32,  # ours: at 128 it learns only word frequencies for minutes
            vocab_size=2_048,  # ours: trained in a second, from a megabyte of text
        ),
        encoder=replace(
            base.encoder,
            layers=2,  # ours: the smallest deep network
            width=128,  # ours: two heads of 64
            heads=2,  # ours: as wide as in base
            feed_forward=512,  # ours: 4 x width as in base
            dropout=0.0,  # ours: under five epochs, too few to overfit
            attention_dropout=0.0,  # ours: as above
            positions=32,  # ours: sequence_length
            # Not 1/sqrt(width), which suits Adam: LAMB moves a matrix by a share of its norm. At
            # 0.088 and 7e-3 the loss reaches word frequencies after 900 steps, here after 600.
            initializer_range=0.02,  # ours: as in base
        ),
        optimizer=replace(
            base.optimizer,
            peak_lr=1e-2,  # ours: 1.2 nats below word frequencies after 1,500 steps
            beta2=0.98,  # ours: table 9's; forgets the steep start in 50 steps; 0.999 not tried
        ),
        schedule=replace(base.schedule, warmup_steps=100),  # ours: about 1/20 of the steps, as base
        batch=replace(
            base.batch,
            sequences=64,  # ours: 0.09 s per step on one core
            per_device=32,  # ours: two devices, or two accumulated micro-batches
            first_sequences=8,  # ours: an eighth of the batch, for --set batch.warmup_steps
        ),
        steps=2_400,  # ours: two to three minutes on two idle cores, estimated
        spikes=replace(base.spikes, window=64, skip_before=10, skip_after=20),  # ours: a short run
        validation=replace(base.validation, every=200),  # ours: twelve points on the curve
        checkpoint=replace(base.checkpoint, every=200),  # ours: a failure loses seconds
    )


def roberta_base_published() -> Run:
    """RoBERTa-base with the paper's Adam: 8,192 x 500K steps."""
    base = roberta_base()
    return replace(
        base,
        name="roberta_base_published",
        encoder=replace(base.encoder, attention_dropout=0.1),  # fairseq attention_dropout
        optimizer=replace(
            base.optimizer,
            kind="adamw",
            peak_lr=6e-4,  # table 9, base
            beta1=0.9,  # table 9; fairseq adam_betas
            beta2=0.98,  # table 9; fairseq adam_betas
            eps=1e-6,  # table 9; fairseq adam_eps
            weight_decay=0.01,  # table 9; fairseq weight_decay
            decay_vectors=True,  # fairseq decays all parameters as one group
            clip_norm=0.0,  # table 9; fairseq clip_norm
            bias_correction=True,  # fairseq optim/adam.py
        ),
        schedule=replace(
            base.schedule,
            warmup_steps=24_000,  # table 9, base
            end_lr=0.0,  # table 9: linear decay
        ),
        batch=replace(base.batch, sequences=8_192),  # table 9: 8k
        steps=500_000,  # table 9
    )


def roberta_large_published() -> Run:
    """RoBERTa-large with the paper's Adam: 8,192 x 500K steps."""
    base, large = roberta_base_published(), roberta_large()
    return replace(
        base,
        name="roberta_large_published",
        encoder=replace(large.encoder, attention_dropout=0.1),  # fairseq attention_dropout
        optimizer=replace(base.optimizer, peak_lr=4e-4),  # table 9, large
        schedule=replace(base.schedule, warmup_steps=30_000),  # table 9, large
        batch=large.batch,
    )


def roberta_tiny_published() -> Run:
    """RoBERTa-tiny with the paper's Adam (the paper has no such size)."""
    base, tiny = roberta_base_published(), roberta_tiny()
    return replace(
        tiny,
        name="roberta_tiny_published",
        optimizer=replace(base.optimizer, peak_lr=1e-3),  # ours: learns faster than at 3e-3
    )

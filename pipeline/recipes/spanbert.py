"""SpanBERT (Joshi et al. 2020): masked spans, predicted also from the tokens at their boundaries.

`spanbert_base` and `spanbert_large` train with LAMB at a batch of 8,192 (extrapolated: You et al.
trained BERT). Their `_published` twins use the paper's Adam and schedule, and draw masks anew in
each epoch, as the original does. Sources of the numbers; "recalled" marks those quoted from memory:

    spanbert      the command in facebookresearch/SpanBERT's pretraining README, and its
                  data/masking.py, data/no_nsp_span_bert_dataset.py, models/pair_bert.py and
                  trainer.py, read
    paper         Joshi et al. 2020, sec. 4.2: recalled, where the command does not say it
    ours          chosen by us, with the reason
"""

from __future__ import annotations

from dataclasses import replace

from pipeline.config.data_settings import DataSettings
from pipeline.config.run import Run
from pipeline.recipes.bert import bert_base, bert_large, bert_tiny, with_adam


def spanbert_base() -> Run:
    """SpanBERT-base, cased, LAMB at a batch of 8,192 (extrapolated)."""
    return as_spanbert(bert_base(), "spanbert_base")


def spanbert_large() -> Run:
    """SpanBERT-large, cased, LAMB at a batch of 8,192 (extrapolated)."""
    return as_spanbert(bert_large(), "spanbert_large")


def spanbert_tiny() -> Run:
    """2 layers of width 128, trained in minutes on 2 CPU cores, for tests."""
    tiny = with_adam(bert_tiny())
    run = as_spanbert(tiny, "spanbert_tiny")
    return replace(
        run,
        data=replace(run.data, vocab_size=tiny.data.vocab_size),
        steps=3_600,  # ours: more than BERT-tiny's, since neighbouring words are masked too
    )


def spanbert_base_published() -> Run:
    """SpanBERT-base with the paper's Adam: 256 x 2.4M steps."""
    return _published(spanbert_base())


def spanbert_large_published() -> Run:
    """SpanBERT-large with the paper's Adam: 256 x 2.4M steps."""
    return _published(spanbert_large())


def spanbert_tiny_published() -> Run:
    """SpanBERT-tiny with the paper's Adam (the paper has no such size)."""
    tiny, adam = spanbert_tiny(), spanbert_base_published().optimizer
    return replace(
        tiny,
        name="spanbert_tiny_published",
        data=_drawn_anew(tiny.data),
        optimizer=replace(adam, peak_lr=1e-3),  # ours: RoBERTa-tiny's
    )


def as_spanbert(bert: Run, name: str) -> Run:
    """A BERT with masked spans and without next sentence prediction."""
    return replace(
        bert,
        name=name,
        data=replace(
            bert.data,
            format="single_segment",
            segments=replace(
                bert.data.segments,
                label="none",  # spanbert --no-nsp
                short_share=0.0,  # spanbert --short-seq-prob
            ),
            masking="span",
            masks=replace(
                bert.data.masks,
                rate=0.15,  # paper: as BERT
                mask_share=0.8,  # spanbert masking.py
                random_share=0.1,  # spanbert masking.py
                span_p=0.2,  # spanbert --geometric-p
                max_span=10,  # spanbert --span-upper
            ),
            lower_case=False,  # spanbert: cased
            vocab_size=28_996,  # spanbert pair_bert.py, the cased architectures
        ),
        objective=replace(
            bert.objective,
            kind="mlm_sbo",
            boundary_weight=1.0,  # spanbert --pair-loss-weight
        ),
    )


def _drawn_anew(data: DataSettings) -> DataSettings:
    return replace(
        data,
        mask_mode="per-epoch",  # spanbert no_nsp_span_bert_dataset.py masks in __getitem__
        duplicates=0,  # per-epoch: none are stored
        masks=replace(
            data.masks,
            random_ids="unigram",  # spanbert masking.py: np.random.choice of the corpus' tokens
        ),
    )


def _published(ours: Run) -> Run:
    return replace(
        ours,
        name=f"{ours.name}_published",
        data=_drawn_anew(ours.data),
        encoder=replace(ours.encoder, attention_dropout=0.1),  # paper: 0.1 everywhere
        optimizer=replace(
            ours.optimizer,
            kind="adamw",
            peak_lr=1e-4,  # spanbert --lr
            beta1=0.9,  # paper: AdamW's default
            beta2=0.999,  # paper: AdamW's default
            eps=1e-8,  # spanbert --adam-eps
            weight_decay=0.01,  # spanbert --weight-decay
            decay_vectors=True,  # spanbert trainer.py decays all parameters as one group
            clip_norm=1.0,  # spanbert --clip-norm
            bias_correction=True,  # spanbert trains with fairseq's Adam, which has it
        ),
        schedule=replace(
            ours.schedule,
            warmup_steps=10_000,  # spanbert --warmup-updates
            end_lr=0.0,  # spanbert polynomial_decay; --min-lr 1e-9 only ends a run
        ),
        batch=replace(ours.batch, sequences=256),  # spanbert: 32 GPUs x 4,096 tokens of rows of 512
        steps=2_400_000,  # spanbert --max-update
    )

"""RoBERTa's tables 1 and 2 (Liu et al. 2019): masks, and formats of the input.

The paper's models are BERT-base (sec. 4), trained for 1M steps at a batch of 256. Figures are its
"our reimplementation": medians over five seeds of fine-tuning, on the development sets.
"""

from __future__ import annotations

from pipeline.experiments.tables.table import Arm, Table
from pipeline.recipes import recipe

MASKING = {"smoke": "roberta_tiny", "mini": "roberta_mini", "base": "roberta_base"}
"""The recipe at each scale."""
FORMATS = {"smoke": "bert_tiny", "mini": "bert_mini", "base": "bert_base"}
"""BERT's, as in the paper: a RoBERTa in transformers has no head for pairs."""
PAPER = "Liu et al. 2019"


def masking(scale: str) -> Table:
    """One stored mask per sequence, ten, or a new one in each epoch."""
    name = MASKING[scale]
    measures = ("SQuAD 2.0 F1", "MNLI-m accuracy", "SST-2 accuracy")
    return Table(
        name="roberta/masking",
        title="masks: one stored, ten stored, or new in each epoch",
        source=f"{PAPER} (arXiv 1907.11692), table 1",
        baseline="ten",
        arms=(
            Arm(
                "static",
                name,
                ("data.mask_mode=static", "data.duplicates=1"),
                f"{PAPER}, sec. 4.1: a single static mask, which no table has",
            ),
            Arm(
                "ten",
                name,
                ("data.mask_mode=duplicates", "data.duplicates=10"),
                f"{PAPER}, table 1, row static: sec. 4.1 masks each sequence in ten ways",
                dict(zip(measures, (78.3, 84.3, 92.5), strict=True)),
            ),
            Arm(
                "per-epoch",
                name,
                ("data.mask_mode=per-epoch", "data.duplicates=0"),
                f"{PAPER}, table 1, row dynamic",
                dict(zip(measures, (78.7, 84.0, 92.9), strict=True)),
            ),
        ),
        measures=measures,
        note="One mask differs from ten from the second pass over the data on, ten from new ones "
        "from the eleventh on. Shorter runs compare an arm with itself.",
    )


def formats(scale: str) -> Table:
    """Two segments or sentences with next sentence prediction, or full rows without it."""
    name = FORMATS[scale]
    measures = (
        "SQuAD 1.1 F1", "SQuAD 2.0 F1", "MNLI-m accuracy", "SST-2 accuracy", "RACE accuracy",
    )  # fmt: skip
    rows = (
        ("segment-pair", True, "SEGMENT-PAIR", (90.4, 78.7, 84.0, 92.9, 64.2)),
        ("sentence-pair", True, "SENTENCE-PAIR", (88.7, 76.2, 82.9, 92.1, 63.0)),
        ("full-sentences", False, "FULL-SENTENCES", (90.4, 79.1, 84.7, 92.5, 64.8)),
        ("doc-sentences", False, "DOC-SENTENCES", (90.6, 79.7, 84.7, 92.7, 65.6)),
    )
    with_nsp = ("data.segments.label=next", "objective.kind=mlm_pair")
    without = ("data.segments.label=none", "objective.kind=mlm")
    return Table(
        name="roberta/formats",
        title="input formats, with and without next sentence prediction (NSP)",
        source=f"{PAPER} (arXiv 1907.11692), table 2",
        baseline="segment-pair",
        arms=tuple(
            Arm(
                arm,
                name,
                (
                    f"data.format={arm.replace('-', '_')}",
                    *(with_nsp if has_nsp else without),
                    *_equal_tokens(name),
                ),
                f"{PAPER}, table 2, row {row} ({'with' if has_nsp else 'without'} NSP loss)",
                dict(zip(measures, scores, strict=True)),
            )
            for arm, has_nsp, row, scores in rows
        ),
        measures=measures,
        note="A step reads the same number of tokens in each format, so more sequences where they "
        "are shorter.",
    )


def _equal_tokens(name: str) -> tuple[str, ...]:
    """Steps of as many tokens as full rows would have (sec. 4.2), and no row cut at random."""
    run = recipe(name)
    return (
        f"batch.step_tokens={run.batch.sequences * run.data.sequence_length}",
        "data.segments.short_share=0",  # sec. 3.1: no short sequences are injected
    )

"""SpanBERT's tables 6 and 7 (Joshi et al. 2020): masks, and the boundary objective.

The paper's figures are those of checkpoints at 1.2M of 2.4M steps, on the development sets.
"""

from __future__ import annotations

from pipeline.experiments.tables.table import Arm, Table

RECIPES = {"smoke": "spanbert_tiny", "mini": "spanbert_mini", "base": "spanbert_base"}
"""The recipe at each scale."""
PAPER = "Joshi et al. 2020"


def masking(scale: str) -> Table:
    """Sub-words, whole words or spans are masked; spans also with the boundary objective."""
    measures = (
        "SQuAD 2.0 F1", "NewsQA F1", "TriviaQA F1", "coreference F1", "MNLI-m accuracy",
        "QNLI accuracy", "GLUE average",
    )  # fmt: skip
    rows = (
        ("sub-words", "table 6, row Subword Tokens (pairs and NSP)", "token", "mlm",
         (83.8, 72.0, 76.3, 77.7, 86.7, 92.5, 83.2)),
        ("words", "table 6, row Whole Words (pairs and NSP)", "whole_word", "mlm",
         (84.3, 72.8, 77.1, 76.6, 86.3, 92.8, 82.9)),
        ("spans", "table 7, row Span Masking (1seq)", "span", "mlm",
         (86.7, 73.4, 80.0, 76.3, 87.3, 93.8, 83.8)),
        ("spans-sbo", "table 7, row Span Masking (1seq) + SBO", "span", "mlm_sbo",
         (86.8, 74.1, 80.3, 79.0, 87.6, 93.9, 84.0)),
    )  # fmt: skip
    return Table(
        name="spanbert/masking",
        title="masked sub-words, words or spans, and the span boundary objective (SBO)",
        source=f"{PAPER} (arXiv 1907.10529), tables 6 and 7",
        baseline="sub-words",
        arms=tuple(
            Arm(
                arm,
                RECIPES[scale],
                (f"data.masking={masks}", f"objective.kind={kind}"),
                f"{PAPER}, {row}",
                dict(zip(measures, scores, strict=True)),
            )
            for arm, row, masks, kind, scores in rows
        ),
        measures=measures,
        note="All arms here read single segments. The paper's table 6 has pairs and NSP throughout "
        "(there spans reach 85.4 on SQuAD 2.0), so its rows do not compare with table 7's. Only "
        "masked spans have a boundary to predict from.",
    )

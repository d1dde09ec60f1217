"""ALBERT's tables 4 and 5 (Lan et al. 2020): shared weights, and pair objectives.

The paper's models are ALBERT-base, trained for 125K steps at a batch of 4,096. Scores are those of
the development sets; SQuAD has F1 and exact match.
"""

from __future__ import annotations

from pipeline.experiments.tables.table import Arm, Table
from pipeline.recipes import recipe

RECIPES = {"smoke": "albert_tiny", "mini": "albert_mini", "base": "albert_base_v1_published"}
"""The recipe at each scale; version 1 is the paper's model."""
PAPER = "Lan et al. 2020"
DOWNSTREAM = (
    "SQuAD 1.1 F1", "SQuAD 1.1 EM", "SQuAD 2.0 F1", "SQuAD 2.0 EM", "MNLI accuracy",
    "SST-2 accuracy", "RACE accuracy", "average",
)  # fmt: skip


def sharing(scale: str) -> Table:
    """All weights of the layers shared, those of one part, or none; with narrow and wide words."""
    name = RECIPES[scale]
    narrow = recipe(name).encoder.embedding_width
    measures = ("parameters (M)", *DOWNSTREAM)
    rows = (
        ("all", "all-shared", narrow, (12, 89.3, 82.3, 80.0, 77.1, 82.0, 90.3, 64.0, 80.1)),
        ("attention", "shared-attention", narrow,
         (64, 89.9, 82.8, 80.7, 77.9, 83.4, 91.9, 67.6, 81.7)),
        ("feed_forward", "shared-FFN", narrow,
         (38, 88.9, 81.6, 78.6, 75.6, 82.3, 91.7, 64.4, 80.2)),
        ("none", "not-shared", narrow, (89, 89.9, 82.8, 80.3, 77.3, 83.2, 91.5, 67.9, 81.6)),
        # 0: as wide as the layers
        ("all", "all-shared", 0, (31, 88.6, 81.5, 79.2, 76.6, 82.0, 90.6, 63.3, 79.8)),
        ("attention", "shared-attention", 0, (83, 89.9, 82.7, 80.0, 77.2, 84.0, 91.4, 67.7, 81.6)),
        ("feed_forward", "shared-FFN", 0, (57, 89.2, 82.1, 78.2, 75.4, 81.5, 90.8, 62.6, 79.5)),
        ("none", "not-shared", 0, (108, 90.4, 83.2, 80.4, 77.6, 84.5, 92.8, 68.2, 82.3)),
    )  # fmt: skip
    return Table(
        name="albert/sharing",
        title="weights shared by the layers, and the width of the word embeddings",
        source=f"{PAPER} (arXiv 1909.11942), table 4",
        baseline="all",
        arms=tuple(
            Arm(
                shared.replace("_", "-") + ("" if width else "-wide"),
                name,
                (f"encoder.sharing={shared}", f"encoder.embedding_width={width}"),
                f"{PAPER}, table 4, E={128 if width else 768}, row {row}",
                dict(zip(measures, scores, strict=True)),
            )
            for shared, row, width, scores in rows
        ),
        measures=measures,
        note=f"Embeddings have a width of {narrow}, or in the arms called wide that of the hidden "
        "vectors. The arms differ in parameters, not in FLOPs per layer. One learning rate serves "
        "them all unless it is tuned.",
    )


def pair(scale: str) -> Table:
    """No pair objective, next sentence prediction, or sentence order prediction."""
    name = RECIPES[scale]
    measures = ("MLM accuracy", "NSP accuracy", "SOP accuracy", *DOWNSTREAM)
    rows = (
        ("none", "None", "none", "mlm",
         (54.9, 52.4, 53.3, 88.6, 81.5, 78.1, 75.3, 81.5, 89.9, 61.7, 79.0)),
        ("nsp", "NSP", "next", "mlm_pair",
         (54.5, 90.5, 52.0, 88.4, 81.5, 77.2, 74.6, 81.6, 91.1, 62.3, 79.2)),
        ("sop", "SOP", "order", "mlm_pair",
         (54.0, 78.9, 86.5, 89.3, 82.3, 80.0, 77.1, 82.0, 90.3, 64.0, 80.1)),
    )  # fmt: skip
    return Table(
        name="albert/pair",
        title="no pair objective, next sentence prediction (NSP), sentence order prediction (SOP)",
        source=f"{PAPER} (arXiv 1909.11942), table 5",
        baseline="none",
        arms=tuple(
            Arm(
                arm,
                name,
                (f"data.segments.label={label}", f"objective.kind={objective}"),
                f"{PAPER}, table 5, row {row}",
                dict(zip(measures, scores, strict=True)),
            )
            for arm, row, label, objective, scores in rows
        ),
        measures=measures,
        note="Each model is scored on the held-out pairs of both tasks. In both, label 1 means "
        "that the segments are not a text in its order, so a head trained on one task answers the "
        "other. The arm without a head guesses.",
    )

"""ELECTRA's table 5 (Clark et al. 2020): objectives from BERT's to ELECTRA's.

A score is the average over GLUE's development sets, the median of ten fine-tunings (sec. 3.1, 3.5).
"""

from __future__ import annotations

from pipeline.experiments.tables.table import Arm, Table

RECIPES = {"smoke": "electra_tiny", "mini": "electra_mini", "base": "electra_base"}
"""The recipe at each scale."""
PAPER = "Clark et al. 2020"
MEASURE = "GLUE score"


def objective(scale: str) -> Table:
    """Replaced tokens detected everywhere or where masked, restored there or everywhere, or MLM."""
    rows = (
        ("electra", "ELECTRA", "rtd", 85.0),
        ("all-tokens-mlm", "All-Tokens MLM", "all_tokens_mlm", 84.3),
        ("replace-mlm", "Replace MLM", "replace_mlm", 82.4),
        ("electra-15", "ELECTRA 15%", "rtd_masked", 82.4),
        ("bert", "BERT", "mlm", 82.2),
    )
    # ours: every arm has the micro-batch of all-tokens-mlm, which holds logits of all words for
    # every token: 2 GB at base. Otherwise seconds and memory would differ by this setting, too.
    memory = ("batch.per_device=32",) if scale == "base" else ()
    return Table(
        name="electra/objective",
        title="replaced token detection, its variants, and masked language modelling",
        source=f"{PAPER} (arXiv 2003.10555), table 5",
        baseline="bert",
        arms=tuple(
            Arm(
                arm,
                RECIPES[scale],
                (f"objective.kind={kind}", *memory),
                f"{PAPER}, table 5, column {row}",
                {MEASURE: score},
            )
            for arm, row, kind, score in rows
        ),
        measures=(MEASURE,),
        note="Equal tokens are not equal FLOPs: all arms but bert also train a generator. All read "
        "the same masks, ELECTRA's: 85 % [MASK], no random words. Losses of different objectives "
        "do not compare; fine-tuned scores do.",
    )

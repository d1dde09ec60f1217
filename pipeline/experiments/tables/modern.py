"""What ModernBERT changes in a layer, each change alone and all together (Warner et al. 2024).

The paper tells its choices (sec. 2.1) and prints no figures for single ones. Between BERT's layers
and ModernBERT's there is no class in transformers, so no arm is exported or fine-tuned.
"""

from __future__ import annotations

from pipeline.experiments.tables.table import Arm, Table
from pipeline.recipes import recipe

RECIPES = {"smoke": "roberta_tiny", "mini": "roberta_mini", "base": "roberta_base"}
"""The recipe at each scale."""
PAPER = "Warner et al. 2024"
ROTARY = (
    "encoder.position_kind=rotary", "encoder.position_offset=0", "encoder.initializer=normal",
)  # fmt: skip


def architecture(scale: str) -> Table:
    """RoBERTa's layers, with one of ModernBERT's choices each, and with all of them."""
    name = RECIPES[scale]
    run = recipe(name)
    # as 128 to the 512 tokens of older models; three matrices with the parameters of two
    windows = (f"encoder.window={run.data.sequence_length // 4}", "encoder.global_every=3")
    gated = ("encoder.gated=true", f"encoder.feed_forward={_two_thirds(run.encoder.feed_forward)}")
    norm, biases = "encoder.norm=pre", "encoder.biases=false"
    megatron = "encoder.initializer=megatron"
    rows: tuple[tuple[str, tuple[str, ...], str], ...] = (
        ("roberta", (), "Liu et al. 2019"),
        ("pre-norm", (norm,), f"{PAPER}, sec. 2.1.1"),
        ("no-biases", (biases,), f"{PAPER}, sec. 2.1.1"),
        ("rotary", ROTARY, f"{PAPER}, sec. 2.1.1"),
        ("gated", gated, f"{PAPER}, sec. 2.1.1"),
        ("windows", (*ROTARY, *windows), f"{PAPER}, sec. 2.1.2"),
        # ROTARY[:2], as its third is an initializer, which megatron replaces
        ("modernbert", (norm, biases, *ROTARY[:2], megatron, *gated, *windows), PAPER),
    )
    return Table(
        name="modern/architecture",
        title="LayerNorm, biases, positions, gates and windows",
        source=f"{PAPER} (arXiv 2412.13663), section 2.1",
        baseline="roberta",
        arms=tuple(
            Arm(arm, name, ("checkpoint.exportable=false", *changes), source)
            for arm, changes, source in rows
        ),
        measures=(),
        note="Windows need rotary positions, so their arm differs from `rotary` in the windows. "
        "Gated layers are narrower, with as many parameters. Positions of roberta_mini start as "
        "sinusoids, which rotary ones cannot.",
    )


def _two_thirds(size: int) -> int:
    """Two thirds of a size, rounded down to a multiple of 16."""
    return size * 2 // 3 // 16 * 16

"""The heads of all models, in words: parts that a folder may lack. Needs no torch."""

from __future__ import annotations

HEADS = {
    "head": "of masked words",
    "pair_head": "of pairs of segments",
    "boundary_head": "of span boundaries",
    "detection": "of replaced tokens",
    "restoring": "of restored words",
}
"""Our name of a part -> what it predicts."""

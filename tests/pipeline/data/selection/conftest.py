"""Texts as the arrays that kernels take."""

from collections.abc import Iterable

from pipeline.data.text.cleaning import Offsets, clean
from pipeline.kernels.bits import Bytes


def arrays(texts: Iterable[str]) -> tuple[Bytes, Offsets]:
    """Cleaned texts, each followed by a NUL, and where they start."""
    text = clean([*texts])
    return text.buffer, text.offsets

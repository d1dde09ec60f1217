"""Texts as the arrays that kernels take, and selections from corpora."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from pipeline.data.selection.select import Selection, plan_selection
from pipeline.data.text.cleaning import Offsets, clean
from pipeline.data.text.text_tasks import cut_tasks
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.ingest.extraction.packs import ungrouped
from pipeline.kernels.bits import Bytes


def arrays(texts: Iterable[str]) -> tuple[Bytes, Offsets]:
    """Cleaned texts, each followed by a NUL, and where they start."""
    text = clean([*texts])
    return text.buffer, text.offsets


def chosen(
    folder: Path, *corpora: str, how: str = "near", split_bytes: int = 1 << 25,
    filters: Sequence[str] = (),
) -> Selection:  # fmt: skip
    """A selection from folders of `folder`, as corpora in this order."""
    found = (corpus_sources(name, [str(folder / name)])[1] for name in corpora)
    tasks = cut_tasks([*ungrouped(source for its in found for source in its)], split_bytes)
    return plan_selection(tasks, how, [*filters], [], folder / "documents")

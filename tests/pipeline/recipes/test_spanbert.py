from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.planning.phase_plan import parameters_of
from pipeline.recipes import recipe
from tests.pipeline.recipes.on_meta import sizes


@pytest.mark.parametrize(
    ("size", "encoder", "boundary"),
    [
        # cased BERT without a pooler; the boundary head by its definition
        ("base", 107_719_680, 1_959_676),
        ("large", 332_529_664, 3_388_668),
    ],
)
def test_parameters_are_exact(size: str, encoder: int, boundary: int) -> None:
    for name in (f"spanbert_{size}", f"spanbert_{size}_published"):
        run = recipe(name)
        found = sizes(run)
        parts = {"bert.": 0, "cls.": 0, "span_boundary.": 0}
        for part, count in found.items():
            parts[part.partition(".")[0] + "."] += count
        width, words = run.encoder.width, 28_996
        head = (width + 1) * width + 2 * width + words
        assert tuple(parts.values()) == (encoder, head, boundary)
        joined = 2 * width + 200
        matrices = (joined + 1) * width + (width + 1) * width
        assert boundary == 15 * 200 + matrices + 4 * width + words
        assert parameters_of(run) == encoder + head + boundary


def test_published_is_the_command_s() -> None:
    for size in ("base", "large"):
        ours, published = recipe(f"spanbert_{size}"), recipe(f"spanbert_{size}_published")
        masks = replace(ours.data.masks, random_ids="unigram")
        drawn = replace(ours.data, mask_mode="per-epoch", duplicates=0, masks=masks)
        assert published.data == drawn and published.encoder == ours.encoder
        optimizer = published.optimizer
        assert (optimizer.kind, optimizer.peak_lr, optimizer.eps) == ("adamw", 1e-4, 1e-8)
        assert (optimizer.clip_norm, optimizer.decay_vectors) == (1.0, True)
        schedule = (published.batch.sequences, published.steps, published.schedule.warmup_steps)
        assert schedule == (256, 2_400_000, 10_000)


def test_spans_are_those_of_the_command() -> None:
    data = recipe("spanbert_base").data
    assert (data.masks.span_p, data.masks.max_span, data.masks.rate) == (0.2, 10, 0.15)
    assert (data.format, data.segments.short_share, data.lower_case) == (
        "single_segment", 0.0, False,
    )  # fmt: skip

from dataclasses import replace

import pytest

from tests.pipeline.recipes.as_set import assert_set
from tests.pipeline.recipes.on_meta import counted


@pytest.mark.parametrize(
    ("size", "encoder", "boundary"),
    [
        # cased BERT without a pooler; the boundary head by its definition
        ("base", 107_719_680, 1_959_676),
        ("large", 332_529_664, 3_388_668),
    ],
)
def test_sizes_spans_and_published_training_are_those_of_the_command(
    size: str, encoder: int, boundary: int
) -> None:
    ours = assert_set(
        f"spanbert_{size}",
        "data.masks.span_p=0.2 data.masks.max_span=10 data.masks.rate=0.15",
        "data.format=single_segment data.segments.short_share=0 data.lower_case=false",
    )
    published = assert_set(
        f"spanbert_{size}_published",
        "optimizer.kind=adamw optimizer.peak_lr=1e-4 optimizer.eps=1e-8 optimizer.clip_norm=1",
        "optimizer.decay_vectors=true batch.sequences=256 steps=2400000",
        "schedule.warmup_steps=10000",
    )
    masks = replace(ours.data.masks, random_ids="unigram")
    drawn = replace(ours.data, mask_mode="per-epoch", duplicates=0, masks=masks)
    assert published.data == drawn and ours.encoder.attention_dropout == 0
    assert published.encoder == replace(ours.encoder, attention_dropout=0.1)
    width, words = ours.encoder.width, 28_996
    head = (width + 1) * width + 2 * width + words
    matrices = (2 * width + 200 + 1) * width + (width + 1) * width
    assert boundary == 15 * 200 + matrices + 4 * width + words
    total = encoder + head + boundary
    assert counted(ours, "bert.") == counted(published, "bert.") == (encoder, total)
    assert counted(ours, "span_boundary.")[0] == boundary

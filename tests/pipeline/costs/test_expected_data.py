from pathlib import Path

import pytest

from pipeline.base.errors import ConfigError
from pipeline.config.settings import override
from pipeline.costs.expected_data import expected_datasets
from pipeline.loading.dataset import Dataset
from pipeline.planning.phases import make_phases
from pipeline.recipes import recipe


def test_masks_at_a_higher_rate_take_more_space() -> None:
    """size: bytes per token of ten masks, as pipeline.prepare wrote them of the sample."""
    for length, rate, size in (
        (128, 0.15, 3.183), (128, 0.3, 3.843), (128, 0.4, 4.282),
        (512, 0.15, 2.251), (512, 0.3, 2.923), (512, 0.4, 3.370),
    ):  # fmt: skip
        settings = [f"data.sequence_length={length}", f"data.masks.rate={rate}"]
        (train,), _ = expected_datasets(override(recipe("roberta_base"), settings), 10**7)
        masks = sum(mask.bytes for shard in train.shards for mask in shard.masks)
        assert masks / sum(shard.tokens for shard in train.shards) == pytest.approx(size, rel=0.06)


def test_expected_shards_are_like_prepared_ones(prepared: Path) -> None:
    """The same number of tokens gives the rows, predictions and bytes of the sample's shards."""
    real = Dataset.open(prepared)
    run = recipe("roberta_tiny")
    run = override(run, [f"data.sequence_length={real.manifest.sequence_length}"])
    (train,), (held_out,) = expected_datasets(run, real.manifest.totals["tokens"])
    assert train.mean_predictions == pytest.approx(real.mean_predictions, rel=0.03)
    found = []
    for manifest in (real.manifest, train.manifest):
        masks = sum(mask.bytes for shard in manifest.shards for mask in shard.masks)
        rows = sum(shard.bytes for shard in manifest.shards)
        found.append([sum(shard.sequences for shard in manifest.shards), rows, masks])
    assert found[1] == pytest.approx(found[0], rel=0.06)
    assert len(train.shards[0].masks) == len(real.shards[0].masks) == 10
    assert held_out.piece_rows.sum() > 0


def test_every_recipe_can_be_planned_without_shards() -> None:
    for name in (
        "bert_base_published", "electra_small", "albert_tiny", "spanbert_base",
        "modernbert_base_published",
    ):  # fmt: skip
        run = recipe(name)
        train, held_out = expected_datasets(run, 10**9)
        phases = make_phases(run, 8, 1, train, held_out)
        assert len(phases) == len(run.phases) + 1
        assert phases[0].plan.train_sequences > 10**6


def test_documents_that_see_themselves_alone_are_counted() -> None:
    """As in the sample's news, of 571 tokens each: 1.85 pieces in a row of 486."""
    run = override(recipe("roberta_base"), ["batch.attention=document", "batch.per_device=512"])
    train, held_out = expected_datasets(run, 10**9)
    assert train[0].manifest.totals["documents"] == pytest.approx(10**9 / 571, rel=0.01)
    found = make_phases(run, 8, 1, train, held_out)[0].plan.on_gpu.capacity
    assert 1.85 * found.rows < found.pieces < 2.5 * found.rows


def test_a_mixture_needs_shards() -> None:
    mixture = 'batch.mixture=[{"corpus": "books", "weight": 1}]'
    for setting in (mixture, "batch.mixture_exponent=0.3", 'batch.corpora=["books"]'):
        run = override(recipe("roberta_tiny"), [setting])
        with pytest.raises(ConfigError, match="--tokens"):
            expected_datasets(run, 10**6)


def test_a_long_corpus_has_several_shards_and_drawn_masks_take_no_space() -> None:
    drawn = override(recipe("roberta_base"), ["data.mask_mode=per-epoch", "data.duplicates=0"])
    (train,), _ = expected_datasets(drawn, 10**9)
    assert len(train.shards) == 4
    assert sum(shard.tokens for shard in train.shards) == pytest.approx(10**9, rel=0.01)
    assert sum(mask.bytes for shard in train.shards for mask in shard.masks) == 0
    assert train.mean_predictions > 70

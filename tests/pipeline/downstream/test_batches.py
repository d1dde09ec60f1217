"""Order of an epoch, and rows in a batch."""

import numpy as np
import torch

from pipeline.downstream.batches import by_feature, by_length, collate, epoch_order, row_length
from pipeline.downstream.features import Feature, Row


def test_an_epoch_has_every_feature_once_with_neighbours_of_its_length() -> None:
    lengths = np.random.default_rng(0).integers(5, 100, 3210).tolist()
    order = epoch_order(lengths, 32, seed=1, epoch=0)
    assert sorted(index for batch in order for index in batch) == list(range(3210))
    assert {len(batch) for batch in order} == {32, 3210 % 32}
    spread = [max(lengths[i] for i in b) - min(lengths[i] for i in b) for b in order]
    assert np.mean(spread) < 5  # 95 without grouping
    assert order == epoch_order(lengths, 32, seed=1, epoch=0)
    assert order != epoch_order(lengths, 32, seed=1, epoch=1)
    assert order != epoch_order(lengths, 32, seed=2, epoch=0)
    longest = [max(lengths[i] for i in batch) for batch in order]
    assert longest != sorted(longest, reverse=True)
    assert by_length([1, 3, 2], 2) == [[1, 2], [0]]


def test_a_batch_has_its_rows_one_after_another() -> None:
    features = [
        Feature(0, (Row([2, 5, 3], 3, [0]), Row([2, 5, 6, 3], 2, [0])), (1,)),
        Feature(1, (Row([2, 3], 2, [0]), Row([2, 9, 3], 1, [0, 2])), (0,)),
    ]
    assert [row_length(feature) for feature in features] == [4, 3]
    batch = collate(features, segments=True, device=torch.device("cpu"))
    assert batch.inputs.input_ids_T.tolist() == [2, 5, 3, 2, 5, 6, 3, 2, 3, 2, 9, 3]
    assert batch.inputs.segment_ids_T is not None
    assert batch.inputs.segment_ids_T.tolist() == [0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1]
    assert batch.inputs.pieces.cu_seqlens.tolist() == [0, 3, 7, 9, 12]
    assert batch.inputs.pieces.longest == 4
    assert batch.inputs.places_N.tolist() == [0, 3, 7, 9, 11]
    assert (batch.counts, batch.targets.tolist()) == ([2, 3], [1, 0])
    parts = by_feature(batch.inputs.places_N, [1, 4])
    assert [part.tolist() for part in parts] == [[0], [3, 7, 9, 11]]
    plain = collate(features, segments=False, device=torch.device("cpu"))
    assert plain.inputs.segment_ids_T is None

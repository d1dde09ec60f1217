"""By hand; test_real_ranks.py compares with DeepSpeed."""

from dataclasses import replace

import pytest

from pipeline.costs.shapes.partition import Partition, partition
from pipeline.planning.deepspeed_config import DeepSpeedFile
from pipeline.recipes import recipe

SMALL = Partition(ranks=2, stage=1, width=4, sizes=(10, 5, 7), kept=(), bucket=16, buffers=1)


def test_shares_are_padded() -> None:
    """22 elements: to 24 for 2 ranks in pairs; by parameter 5 + 3 + 4 at stage 3."""
    assert (SMALL.total, SMALL.padded, SMALL.share) == (22, 24, 12)
    third = replace(SMALL, stage=3, kept=(5, 7))
    assert (third.share, third.weights) == (12, 24)
    assert (third.gathered, third.kept_elements) == (10, 14)
    assert replace(SMALL, stage=0).share == 22
    # A rank holds whole gradients of what overlaps its part: elements 0 to 11 cut the second.
    overlapping = [replace(SMALL, ranks=ranks).overlapping for ranks in (1, 2, 4)]
    assert overlapping == [22, 15, 15]
    # Buffers are as large as the file says.
    assert SMALL.bucket_bytes == 64 == replace(SMALL, stage=2, width=2, buffers=2).bucket_bytes


@pytest.mark.parametrize(("threshold", "is_kept"), [(127, False), (128, True)])
def test_a_parameter_as_large_as_the_threshold_is_kept_whole(threshold: int, is_kept: bool) -> None:
    """The biases of roberta_tiny have 128 elements."""
    file = DeepSpeedFile("mine.json", {"stage": 3, "stage3_param_persistence_threshold": threshold})
    assert (128 in partition(recipe("roberta_tiny"), 2, file).kept) == is_kept


def test_copies_of_a_bucket() -> None:
    for stage, width, copied in (
        (1, 4, 4 * 15),  # (10, 5) goes to both ranks, (7) to one
        (2, 4, 4 * 12),  # (7, 5) goes to both, (10) to one
        (2, 2, 6 * 12),  # joined in bf16, then cast
        (3, 4, 4 * 14),  # (8, 6), padded
        (1, 2, 0),  # one flat tensor already
        (0, 4, 4 * 22),
    ):
        assert replace(SMALL, stage=stage, width=width).copy_bytes == copied, stage

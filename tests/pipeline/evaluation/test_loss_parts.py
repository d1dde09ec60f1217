import math

import pytest
import torch

from model.objectives.masked_language import LossPart, Sums
from pipeline.evaluation import loss_parts
from pipeline.evaluation.loss_parts import first_count, loss_sum, pack_sums, part_metrics
from pipeline.loading.micro_batch import LossCounts

MLM = LossPart(name="mlm", weight=1.0, per="predictions")
PAIR = LossPart(name="pair", weight=0.5, per="pairs")
COUNTS = LossCounts(predictions=10, tokens=80, pairs=4)


def sums(mlm_loss: float = 30.0, pair_loss: float = 2.0) -> Sums:
    named = {"mlm_loss": mlm_loss, "mlm_correct": 5.0, "mask_loss": 8.0, "mask_count": 2.0}
    named |= {"pair_loss": pair_loss, "pair_correct": 3.0}
    return {name: torch.tensor(value) for name, value in named.items()}


def test_each_part_is_a_mean_over_its_own_count_and_absent_without_one() -> None:
    nothing = {name: torch.zeros(()) for name in sums()}
    assert part_metrics((MLM, PAIR), nothing, LossCounts(0, 0, 0)) == {}
    unlabelled = LossCounts(predictions=10, tokens=80, pairs=0)
    expected = {"loss": 3.0, "mlm_loss": 3.0, "mlm_accuracy": 0.5, "mask_loss": 4.0}
    without = {name: value for name, value in sums().items() if not name.startswith("pair")}
    for given in (sums(pair_loss=0.0), without):  # the latter of data without segment pairs
        assert part_metrics((MLM, PAIR), given, unlabelled) == expected
    assert part_metrics((MLM, PAIR), sums(), COUNTS) == expected | {
        "loss": 30 / 10 + 0.5 * 2 / 4, "pair_loss": 0.5, "pair_accuracy": 0.75,
    }  # fmt: skip
    unmasked = part_metrics((MLM,), sums() | {"mask_count": torch.zeros(())}, COUNTS)
    assert math.isnan(unmasked["mask_loss"])


def test_detection_is_reported_by_precision_recall_and_area() -> None:
    parts = (MLM, LossPart(name="rtd", weight=50.0, per="tokens"))
    histogram = torch.zeros(2, 8)
    histogram[0, :4], histogram[1, 3:5] = 15.0, 10.0
    detection = {"loss": 16.0, "correct": 60.0, "found": 6.0, "suspected": 8.0, "replaced": 20.0}
    given = sums() | {f"rtd_{name}": torch.tensor(value) for name, value in detection.items()}
    found = part_metrics(parts, given | {"rtd_histogram": histogram}, COUNTS)
    assert found["loss"] == pytest.approx(3.0 + 50 * 16 / 80)
    assert (found["rtd_accuracy"], found["rtd_precision"], found["rtd_recall"]) == (0.75, 0.75, 0.3)
    assert found["rtd_auc"] == pytest.approx((0.5 * (45 + 7.5) + 0.5 * 60) / 60)


def test_gradients_are_those_of_the_means() -> None:
    given = sums()
    for name in ("mlm_loss", "pair_loss"):
        given[name].requires_grad_()
    (loss_sum((MLM, PAIR), given, COUNTS) / first_count((MLM, PAIR), COUNTS)).backward()
    assert given["mlm_loss"].grad == pytest.approx(1 / 10)
    assert given["pair_loss"].grad == pytest.approx(0.5 / 4)
    # one part of weight 1 is its own sum to the bit
    given = {"mlm_loss": torch.rand(()), "mlm_correct": torch.zeros(())}
    assert torch.equal(loss_sum((MLM,), given, LossCounts(3, 7, 0)), given["mlm_loss"])


def test_sums_of_any_shapes_are_packed_into_one_vector() -> None:
    total: Sums = {}
    given = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor(7.0)}
    for _ in range(2):
        loss_parts.add(total, given)
    packed = pack_sums(total)
    assert packed.dtype == torch.float64 and packed.tolist() == [0, 2, 4, 6, 8, 10, 14]
    back = loss_parts.unpack(packed, total)
    assert torch.equal(back["a"], 2 * given["a"]) and back["b"] == 14
    assert pack_sums({}).numel() == 0 and loss_parts.unpack(pack_sums({}), {}) == {}

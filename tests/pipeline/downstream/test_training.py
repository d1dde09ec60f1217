"""Fine-tuning equals transformers' own classes, and depends on the seed alone."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from transformers import get_linear_schedule_with_warmup

from model.tasks.heads import Kind
from model.tasks.task_model import TaskModel, read_task_model
from pipeline.base.errors import DataError
from pipeline.downstream import training
from pipeline.downstream.batches import TaskBatch, collate, epoch_order, row_length
from pipeline.downstream.features import Feature
from pipeline.downstream.protocols import BERT, ELECTRA
from pipeline.downstream.training import fine_tune, follow_linear_schedule, make_optimizer, predict
from tests.pipeline.downstream.peers import peer, random_features, their_arguments
from tests.pipeline.downstream.small_work import FAMILIES

CPU = torch.device("cpu")
FAST = {("bert", "classification"), ("roberta", "spans"), ("modernbert", "choices")}
CELLS = [
    pytest.param(family, kind, marks=() if (family, kind) in FAST else pytest.mark.slow)
    for family in FAMILIES
    for kind in get_args(Kind)
]


def both(family: str, kind: Kind, **settings: object) -> tuple[TaskModel, Any]:
    """Our model and transformers', of the same weights; settings: of ours."""
    theirs, design = peer(family, kind)
    config = theirs.config.to_dict() | {"architectures": [type(theirs).__name__]} | settings
    if design.labels:
        config["id2label"] = dict(enumerate(design.labels))
    return read_task_model(theirs.state_dict(), config, design, seed=1), theirs


def batch_of(features: list[Feature], step: int, segments: bool) -> TaskBatch:
    """The batch of a step of seed 3, three steps an epoch."""
    lengths = [row_length(feature) for feature in features]
    chosen = epoch_order(lengths, 8, seed=3, epoch=step // 3)[step % 3]
    return collate([features[i] for i in chosen], segments=segments, device=CPU)


@pytest.mark.parametrize(("family", "kind"), CELLS)
def test_fifty_steps_have_the_loss_of_transformers(family: str, kind: Kind) -> None:
    ours, theirs = both(family, kind)
    ours.train()
    optimizer = make_optimizer(ours, BERT)
    decayed = [p for p in theirs.parameters() if p.dim() > 1]
    plain = [p for p in theirs.parameters() if p.dim() < 2]
    peers = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}],
        lr=1e-3, eps=1e-6,
    )  # fmt: skip
    features = random_features(kind, 24)
    losses = []
    for step in range(50):
        batch = batch_of(features, step, ours.config.segment_types > 1)
        loss = training.task_loss(ours(batch.inputs), batch, kind)
        expected = theirs(**their_arguments(batch, kind, theirs.config.pad_token_id)).loss
        assert loss.item() == pytest.approx(expected.item(), abs=1e-4), step
        loss.backward()
        expected.backward()
        training.set_rates(optimizer, 1e-3)
        for one in (optimizer, peers):
            one.step()
            one.zero_grad()
        losses.append(loss.item())
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])  # it trained


def test_training_equals_a_loop_with_transformers() -> None:
    """Its schedule and torch's clipping; the first update's rate is 0."""
    ours, theirs = both("bert", "classification")
    features = random_features("classification", 24)
    protocol = replace(BERT, peak_lr=1e-3, rows=8, epochs=4, weight_decay=0.0)
    fit = fine_tune(ours, features, "classification", protocol, 3, CPU)
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=1e-3, eps=1e-6, weight_decay=0.0)
    schedule = get_linear_schedule_with_warmup(optimizer, 2, 12)
    losses, norms = [], []
    for step in range(12):
        batch = batch_of(features, step, True)
        loss = theirs(**their_arguments(batch, "classification")).loss
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert protocol.clip == 1 and min(norms) > 1.5  # so that it matters
    assert fit.steps == 12 and fit.loss == pytest.approx(sum(losses[-3:]) / 3, abs=1e-4)


def dropout(share: float) -> dict[str, float]:
    return {"hidden_dropout_prob": share, "attention_probs_dropout_prob": share}


def test_a_seed_gives_the_same_model_and_another_seed_another() -> None:
    features = random_features("tags", 20)
    found = []
    for seed in (4, 4, 5):
        model, _ = both("roberta", "tags", **dropout(0.1))
        before = torch.random.get_rng_state()
        fit = fine_tune(model, features, "tags", BERT, seed, CPU)
        assert torch.equal(before, torch.random.get_rng_state())
        assert fit.steps == 3
        found.append([fit.loss, *torch.cat(predict(model, features, CPU)).flatten().tolist()])
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_bfloat16_is_for_products_alone(share: float) -> None:
    """Nearly the loss of float32; weights stay in float32."""
    features = random_features("tags", 60)
    losses = []
    for precision in ("fp32", "bf16"):
        model, _ = both("roberta", "tags", **dropout(share))
        protocol = replace(BERT, peak_lr=1e-3, rows=8, precision=precision)
        losses.append(fine_tune(model, features, "tags", protocol, 0, CPU).loss)
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)


def test_predictions_do_not_depend_on_the_batch() -> None:
    model, _ = both("bert", "choices")
    features = random_features("choices", 5)
    together = predict(model, features, CPU)
    alone = [predict(model, [feature], CPU)[0] for feature in features]
    for left, right in zip(together, alone):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)


def test_rates_fall_by_layer_in_electra() -> None:
    model, _ = both("electra", "classification")
    optimizer = make_optimizer(model, ELECTRA)
    scale = {id(p): group["scale"] for group in optimizer.param_groups for p in group["params"]}
    found = {name: scale[id(p)] for name, p in model.named_parameters()}
    # google-research/electra optimization.py: decay ** (layers + 2 - depth)
    assert found["head.output.weight"] == 1
    for name, depth in (
        ("layers.1.attention.output.weight", 2), ("layers.0.attention.output.bias", 3),
        ("embeddings.words.weight", 4), ("projection.weight", 4),
    ):  # fmt: skip
        assert found[f"encoder.{name}"] == pytest.approx(0.8**depth)


def test_the_rate_rises_and_falls_as_in_transformers() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = get_linear_schedule_with_warmup(optimizer, 4, 40)
    for step in range(40):
        assert follow_linear_schedule(step, 40, 0.1) == pytest.approx(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()


def test_steps_and_predictions_are_shown_and_labels_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []

    def tracked(items: Iterable[Any], *words: Any) -> Iterable[Any]:
        shown.append(words)
        return items

    monkeypatch.setattr(training, "tracked", tracked)
    model, _ = both("bert", "tags")
    features = random_features("tags", 20)
    fine_tune(model, features, "tags", BERT, 0, CPU, "model-0-0")
    predict(model, features, CPU)
    assert shown == [("model-0-0", "steps", 3), ("predicting", "batches")]
    with pytest.raises(DataError, match="no training"):
        fine_tune(model, [], "tags", BERT, 0, CPU)

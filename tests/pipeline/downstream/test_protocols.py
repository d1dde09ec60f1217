"""Published hyperparameters."""

from __future__ import annotations

from pipeline.downstream.protocols import FAMILIES, protocol_for
from pipeline.downstream.tasks import TASKS


def test_published_numbers() -> None:
    bert = protocol_for("bert", TASKS["sst2"], 768)
    assert [point.peak_lr for point in bert.points()] == [5e-5, 4e-5, 3e-5, 2e-5]
    roberta = protocol_for("roberta", TASKS["rte"], 768)
    assert (len(roberta.points()), roberta.epochs, roberta.warmup) == (6, 10, 0.06)
    albert = protocol_for("albert", TASKS["rte"], 768)
    assert (albert.peak_lr, albert.max_steps, albert.warmup) == (3e-5, 800, 0.25)
    dropouts = {bert.dropout, roberta.dropout, albert.dropout}
    assert dropouts == {0.1} and protocol_for("albert", TASKS["cola"], 768).dropout == 0
    sizes = {256: (3e-4, 0.8), 768: (1e-4, 0.8), 1024: (5e-5, 0.9)}
    for width, expected in sizes.items():
        electra = protocol_for("electra", TASKS["stsb"], width)
        assert (electra.peak_lr, electra.layer_decay, electra.epochs) == (*expected, 10)
    assert protocol_for("spanbert", TASKS["squad2"], 768).epochs == 4


def test_small_models_take_higher_rates_but_electra_has_its_own() -> None:
    small = protocol_for("roberta", TASKS["sst2"], 512)
    assert (small.peak_lr, small.epochs, len(small.points())) == (1e-4, 10, 20)
    assert "Liu" in small.source and "Turc" in small.source
    assert protocol_for("roberta", TASKS["sst2"], 768).peak_lr == 2e-5
    assert protocol_for("electra", TASKS["sst2"], 256).peak_lr == 3e-4


def test_every_task_has_a_protocol_in_every_family() -> None:
    for family in FAMILIES:
        for task in TASKS.values():
            protocol = protocol_for(family, task, 768)
            assert 0 <= protocol.warmup < 1 and protocol.points()
            assert set(protocol.describe()) > {"source", "peak_lr", "epochs"}

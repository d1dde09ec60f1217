"""Published hyperparameters."""

from pipeline.downstream.finetune_tasks import TASKS
from pipeline.downstream.protocols import PROTOCOLS, protocol_for, usual_protocol


def test_every_task_has_every_protocol_and_small_models_their_own_but_electra_its_rates() -> None:
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
    modern = protocol_for("modernbert", TASKS["mnli"], 768)
    assert (modern.peak_lr, modern.rows, modern.epochs, modern.length) == (5e-5, 64, 2, 256)
    assert (modern.weight_decay, modern.dropout) == (0.02, 0)
    for name in PROTOCOLS:
        for task in TASKS.values():
            protocol = protocol_for(name, task, 768)
            assert 0 <= protocol.warmup < 1 and protocol.points()
            assert set(protocol.describe()) > {"source", "peak_lr", "epochs"}
    names = {family: usual_protocol(family, 512) for family in PROTOCOLS}
    assert names == dict.fromkeys(PROTOCOLS, "small") | {"electra": "electra"}
    assert usual_protocol("roberta", 768) == "roberta"
    small = protocol_for("small", TASKS["sst2"], 512)
    assert (small.peak_lr, small.epochs, small.clip, len(small.points())) == (3e-4, 4, 1, 20)
    assert protocol_for("small", TASKS["squad2"], 512).length == 384
    assert protocol_for("electra", TASKS["sst2"], 256).peak_lr == 3e-4

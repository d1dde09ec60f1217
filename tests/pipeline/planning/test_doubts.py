from typing import Any

from pipeline.planning.doubts import Machines, doubts
from pipeline.planning.mixtures import CorpusUse

SMALL: dict[str, Any] = {
    "sequences": 64, "train_sequences": 30_000, "epochs": 5.0, "step_flops": 7_000_000_000,
}  # fmt: skip
LARGE = {"sequences": 8192, "train_sequences": 30_000_000, "epochs": 34.0, "step_flops": 3 * 10**15}
TWO_CORES, GPUS = Machines("cpu", 1, 2), Machines("cuda", 8, 0)


class Part:
    """A phase with a plan."""

    def __init__(self, begin: int, end: int, number: int = 1, length: int = 512, **plan: Any):
        self.begin, self.end, self.number, self.order = begin, end, number, length
        self.plan = type("Plan", (), plan)
        self.corpora_used: list[CorpusUse] = []


def said(*phases: Part, machines: Machines, continued: bool = False) -> list[str]:
    return doubts(phases, machines, continued=continued)  # type: ignore[arg-type]


def test_a_run_that_makes_sense_gets_no_warning() -> None:
    assert said(Part(0, 2400, **SMALL), machines=TWO_CORES) == []
    assert said(Part(0, 125_000, **LARGE), machines=GPUS) == []
    assert said(Part(0, 2400, **SMALL | {"epochs": 10.0}), machines=TWO_CORES, continued=True) == []


def test_a_base_model_on_two_cores_takes_hours_a_step() -> None:
    [warning] = said(Part(0, 125_000, **LARGE), machines=TWO_CORES)
    assert warning.startswith(
        "on 2 cores without a GPU a step takes at least 2.78 h, the whole run 39.6 years; train"
    )
    [warning] = said(Part(0, 10**7, **LARGE | {"step_flops": 10**17}), machines=GPUS)
    assert warning.startswith("on 8 GPUs a step takes at least 12.5 s, the whole run 3.96 years")


def test_hundreds_of_passes_and_less_than_a_step() -> None:
    """A model is continued for ten passes, and begun for 40."""
    for epochs, usual, steps in ((480.0, "BERT made 40", 200), (30.0, "10 are enough", 800)):
        part = Part(0, 2400, **SMALL | {"epochs": epochs})
        [warning] = said(part, machines=TWO_CORES, continued=epochs == 30)
        assert warning.startswith(f"the run makes {epochs:.0f} passes over the data, where {usual}")
        assert f"--set steps={steps} makes " in warning
    assert said(Part(0, 2400, **SMALL | {"epochs": 30.0}), machines=TWO_CORES) == []
    few = SMALL | {"train_sequences": 60, "epochs": 2560.0}
    [warning] = said(Part(0, 2400, **few), machines=TWO_CORES)
    assert warning.startswith("a step reads 64 sequences, but the data have only 60: ")
    two = [Part(0, 90, 1, 128, **SMALL | {"epochs": 80.0}), Part(90, 100, 2, 128, **SMALL)]
    two[1].plan.epochs = 30.0
    [warning] = said(*two, machines=TWO_CORES)
    assert warning.startswith("the run makes 110 passes over the data")


def test_a_mixture_that_repeats_a_corpus_more_than_ten_times() -> None:
    """In all phases together; by size everything is read five times in each."""
    parts = [Part(0, 10, 1, 512, **SMALL), Part(10, 20, 2, 512, **SMALL)]
    parts[0].plan.epochs = parts[1].plan.epochs = 2.0
    for part in parts:
        part.corpora_used = [
            CorpusUse("en", 10**6, 0.9, 1.0), CorpusUse("sw", 10**4, 0.06, 5.0),
            *(CorpusUse(f"l{n}", 100, 0.01, 6.0 + n) for n in range(6)),
        ]  # fmt: skip
    [warning] = said(*parts, machines=TWO_CORES)
    assert warning.startswith(
        "the mixture reads 6 of 8 corpora more than 10 times, by size 4.0 times: l5 22 times, l4 "
        "20 times, l3 18 times, l2 16 times, l1 14 times; give more text"
    )
    parts[1].corpora_used = []
    assert not any("reads 6" in line for line in said(*parts, machines=TWO_CORES))
    parts[0].plan.epochs = 20.0  # all are repeated, none twice as often as by size
    assert said(*parts, machines=TWO_CORES) == []
    parts[0].corpora_used[1] = CorpusUse("sw", 10**4, 0.06, 400.0)
    [warning] = said(*parts, machines=TWO_CORES)
    assert warning.startswith(
        "the mixture reads 1 of 8 corpora more than 44 times, by size 22.0 times: sw 400 times; "
    )

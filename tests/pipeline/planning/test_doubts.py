import re
from types import SimpleNamespace
from typing import Any

from pipeline.config.settings import override
from pipeline.planning.doubts import Machines, doubts
from pipeline.planning.mixtures import CorpusUse
from pipeline.recipes import recipe

SMALL: dict[str, Any] = {
    "sequences": 64, "train_sequences": 30_000, "epochs": 5.0, "step_flops": 7_000_000_000,
}  # fmt: skip
LARGE = {"sequences": 8192, "train_sequences": 30_000_000, "epochs": 34.0, "step_flops": 3 * 10**15}
TWO_CORES, GPUS = Machines("cpu", 1, 2), Machines("cuda", 8, 0)


def part(begin: int, end: int, number: int = 1, **plan: Any) -> Any:
    """A phase with a plan."""
    return SimpleNamespace(
        begin=begin, end=end, number=number, order=512, plan=SimpleNamespace(**plan),
        corpora_used=list[CorpusUse](), run=recipe("roberta_tiny"),
    )  # fmt: skip


def said(*phases: Any, machines: Machines = TWO_CORES, continued: bool = False) -> list[str]:
    return doubts(phases, machines, continued=continued)


def test_a_run_that_makes_sense_gets_no_warning() -> None:
    assert said(part(0, 2400, **SMALL)) == []
    assert said(part(0, 125_000, **LARGE), machines=GPUS) == []
    assert said(part(0, 2400, **SMALL | {"epochs": 10.0}), continued=True) == []


def test_a_base_model_on_two_cores_takes_hours_a_step() -> None:
    [warning] = said(part(0, 125_000, **LARGE))
    assert re.search("2 cores .* 2.78 h, .* 39.6 years;", warning)
    [warning] = said(part(0, 10**7, **LARGE | {"step_flops": 10**17}), machines=GPUS)
    assert re.search("8 GPUs .* 12.5 s, .* 3.96 years", warning)


def test_hundreds_of_passes_and_less_than_a_step() -> None:
    """A model is continued for ten passes, and begun for 40."""
    for epochs, usual, steps in ((480.0, 40, 200), (30.0, 10, 800)):
        phase = part(0, 2400, **SMALL | {"epochs": epochs})
        [warning] = said(phase, continued=epochs == 30)
        assert re.search(f" {epochs:.0f} passes .* {usual}.*--set steps={steps} ", warning)
    assert said(part(0, 2400, **SMALL | {"epochs": 30.0})) == []
    few = SMALL | {"train_sequences": 60, "epochs": 2560.0}
    [warning] = said(part(0, 2400, **few))
    assert re.search("64 sequences, .* 60:", warning)
    two = [part(0, 90, **SMALL | {"epochs": 80.0}), part(90, 100, 2, **SMALL)]
    two[1].plan.epochs = 30.0
    [warning] = said(*two)
    assert " 110 passes " in warning


def test_a_mixture_that_repeats_a_corpus_more_than_ten_times() -> None:
    """In all phases together; by size everything is read five times in each."""
    parts = [part(0, 10, **SMALL), part(10, 20, 2, **SMALL)]
    parts[0].plan.epochs = parts[1].plan.epochs = 2.0
    for phase in parts:
        phase.corpora_used = [
            CorpusUse("en", 10**6, 0.9, 1.0), CorpusUse("sw", 10**4, 0.06, 5.0),
            *(CorpusUse(f"l{n}", 100, 0.01, 6.0 + n) for n in range(6)),
        ]  # fmt: skip
    [warning] = said(*parts)
    most = "l5 22 times, l4 20 times, l3 18 times, l2 16 times, l1 14 times;"
    assert re.search(f" 6 of 8 .* 10 times, by size 4.0 times: {most}", warning)
    parts[1].corpora_used = []
    assert not any("reads 6" in line for line in said(*parts))
    parts[0].plan.epochs = 20.0  # all are repeated, none twice as often as by size
    assert said(*parts) == []
    parts[0].corpora_used[1] = CorpusUse("sw", 10**4, 0.06, 400.0)
    [warning] = said(*parts)
    assert re.search(" 1 of 8 .* 44 times, by size 22.0 times: sw 400 times;", warning)


def test_counts_of_words_that_the_run_does_not_reach() -> None:
    """The first phase reads 1,000 words in 100 steps, the second one 2,000 in 50."""
    phases = [part(0, 100, words=1000, **SMALL), part(100, 150, 2, words=2000, **SMALL)]

    def warned(marks: str) -> list[str]:
        phases[-1].run = override(phases[0].run, [f"checkpoint.at_words={marks}"])
        return said(*phases)

    assert warned("500 3e3") == []
    [warning] = warned("500 3e3..9e3/1e3")
    assert "reads 3,000 words, " in warning and " 4,000, 5,000, 6,000, 7,000, 8,000 and " in warning
    assert " at 3,001 of checkpoint.at_words;" in warned("3001")[0]
    phases[0].plan.words = 0  # shards of an older version: refused elsewhere
    assert warned("3001") == []

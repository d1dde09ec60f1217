import pytest

from pipeline.costs.data_use import data_use, data_warnings
from tests.pipeline.costs.planned import planned


def values(*arguments: str, tokens: int) -> dict[str, float]:
    job = planned(*arguments, tokens=tokens)
    return {part.name: part.value for part in data_use(job.phases(job.hardware))}


def test_passes_masks_and_tokens_per_parameter() -> None:
    found = values("roberta_tiny", "steps=1000", "schedule.warmup_steps=10", tokens=10**6)
    # 64,000 sequences, of a million tokens less those that are held out
    rows = (1e6 - 1e6 * 0.005) / (0.95 * 32)
    assert found["passes"] == pytest.approx(64_000 / rows, rel=0.01)
    assert found["views of each stored mask"] == pytest.approx(found["passes"] / 10)
    assert found["tokens read"] == pytest.approx(64_000 * 0.95 * 32, rel=0.01)
    assert found["dead tokens on a GPU"] == pytest.approx(0.05, abs=0.001)
    drawn = ("data.mask_mode=per-epoch", "data.duplicates=0")
    assert values("roberta_tiny", *drawn, tokens=10**6)["views of each mask"] == 1
    short = 'phases=[{"steps": 600, "sequence_length": 16, "sequences": 64}]'
    names = {"passes, sequences of 16", "passes, sequences of 32", "dead tokens on a GPU, phase 2"}
    assert names <= set(values("roberta_tiny", short, tokens=10**6))  # by length


def test_less_than_a_pass_is_a_warning() -> None:
    job = planned("roberta_tiny", tokens=10**8)
    (line,) = data_warnings(job.phases(job.hardware))
    assert "9 of 10 stored masks" in line and " 4." in line
    job = planned("roberta_tiny", tokens=10**6)
    assert data_warnings(job.phases(job.hardware)) == []

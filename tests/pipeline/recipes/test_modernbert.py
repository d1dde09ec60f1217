from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.settings import override
from pipeline.planning.phase_plan import parameters_of
from pipeline.recipes import recipe
from tests.pipeline.recipes.as_set import assert_set
from tests.pipeline.recipes.on_meta import counted

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("size", "count", "batch", "warmups", "steps"),
    [
        # 50 B tokens while the batch grows by 768, 3 B of the learning rate's; 10 B by 448, 2 B
        ("base", 149_655_232, 4_608, (21_192, 3_815), 374_899),
        ("large", 395_881_664, 4_928, (3_963, 1_665), 342_629),
    ],
)
def test_sizes_are_the_released_models_and_the_first_phase_has_the_papers_tokens(
    size: str, count: int, batch: int, warmups: tuple[int, int], steps: int
) -> None:
    run = assert_set(
        f"modernbert_{size}_published",
        "optimizer.kind=stable_adamw optimizer.beta2=0.98 optimizer.clip_norm=0",
        f"batch.sequences={batch} steps={steps} batch.warmup_steps={warmups[0]}",
        f"schedule.warmup_steps={warmups[1]}",
    )
    assert run.optimizer.peak_lr * run.optimizer.weight_decay == pytest.approx(1e-5)
    assert recipe(f"modernbert_{size}").encoder == run.encoder
    assert counted(run, "")[1] == count


def test_the_pages_sizes_have_the_pages_parameters() -> None:
    page = (ROOT / "pipeline/recipes/MODERNBERT.md").read_text()
    lines = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("|")]
    (_, *names, _), _, *rows = ([cell.strip(" `") for cell in line] for line in lines)
    assert len(rows) == 8
    for _, *values, parameters in rows:
        changes = [f"{name}={value}" for name, value in zip(names, values, strict=True)]
        run = override(recipe("modernbert_base"), changes)
        assert f"{parameters_of(run):,}" == parameters


def test_layers_are_the_papers_and_mini_differs_from_roberta_mini_in_them_alone() -> None:
    assert_set(
        "modernbert_base",
        "encoder.norm=pre encoder.gated=true encoder.biases=false encoder.position_kind=rotary",
        "encoder.window=128 encoder.global_every=3 encoder.initializer=megatron",
        "encoder.dropout_places=attention_output",
    )
    ours, roberta = recipe("modernbert_mini"), recipe("roberta_mini")
    assert replace(ours, name=roberta.name, encoder=roberta.encoder) == roberta
    assert parameters_of(ours) == pytest.approx(parameters_of(roberta), rel=0.01)

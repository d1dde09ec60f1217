"""The ablations that are shown are complete, and their pages and README repeat their figures."""

import pytest

from pipeline.base.typed_json import read_object
from pipeline.reporting.ablation_section import read_ablation_report
from pipeline.reporting.renderings import as_page, as_text
from tests.launching.process import ROOT

EXAMPLES = ROOT / "pipeline/experiments/examples"
NAMES = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())


@pytest.mark.parametrize("name", NAMES)
def test_pages_and_readme_show_the_table(name: str) -> None:
    report = read_ablation_report(EXAMPLES / name)
    assert (EXAMPLES / name / "page.html").read_text() == as_page(report), (
        f"make it again: python -m pipeline.report --ablation {EXAMPLES / name} --output ..."
    )
    pages = [EXAMPLES / "README.md", *[ROOT / "README.md"] * (name == "rate")]
    _, table = as_text(report).split("Loss at [MASK], nats; lower is better\n", 1)
    for row in table.split("\n\n", 1)[0].splitlines():
        for page in pages:
            assert row.removeprefix("  ") in page.read_text(), row


@pytest.mark.parametrize("name", NAMES)
def test_every_run_is_there(name: str) -> None:
    content = read_object(EXAMPLES / name / "ablation.json")
    arms, seeds = [arm["name"] for arm in content["arms"]], content["seeds"]
    expected = {(arm, seed) for arm in arms for seed in range(seeds)}
    expected |= {(content["baseline"], seed) for seed in range(seeds, 2 * seeds)}
    assert {(run["arm"], run["seed"]) for run in content["runs"]} == expected
    assert all(run["measures"]["mask_loss"] > 0 for run in content["runs"])

"""Losses compare within one vocabulary, one set of shards and one objective."""

import json
from pathlib import Path
from typing import Any

from pipeline.reporting.comparable import groups_of, is_loss, why_apart
from pipeline.reporting.run_summary import RunSummary, read_run
from tests.pipeline.phase_data import of_rate
from tests.pipeline.reporting.small_runs import write_run


def read(path: Path, **record: Any) -> RunSummary:
    run = read_run(write_run(path))
    run.record.update(record)
    return run


def test_runs_are_grouped_by_what_their_losses_are_of(tmp_path: Path) -> None:
    a, b = read(tmp_path / "a"), read(tmp_path / "b")
    words = read(tmp_path / "words", tokenizer_sha256="ef")
    data = read(tmp_path / "data", data=[{"directory": "x", "fingerprint": "other"}])
    kind = read(tmp_path / "kind")
    kind.settings["objective.kind"] = "mlm_sbo"
    assert groups_of([a, words, b, data, kind]) == [[a, b], [words], [data], [kind]]
    assert why_apart(a, b) == ""
    assert why_apart(a, words) == "another vocabulary"
    assert why_apart(a, data) == "other data or held-out masks"
    assert why_apart(a, kind) == "another objective (objective.kind=mlm_sbo)"
    b.record.clear()  # of a run that cannot be read
    b.settings.clear()
    assert why_apart(a, b).endswith("another objective (unknown)")


def test_held_out_losses_compare_at_one_rate_of_masks(prepared: Path, tmp_path: Path) -> None:
    """Also those of runs that train with other masks of the same rows."""
    other = of_rate(prepared, 0.3, tmp_path / "other")
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["masking"]["rate"], manifest["fingerprint"] = 0.3, "other"
    (other / "manifest.json").write_text(json.dumps(manifest))
    one, third = (read_run(write_run(tmp_path / name, data=prepared)) for name in ("a", "c"))
    two = read_run(write_run(tmp_path / "b", data=other))
    two.record["data"][0]["fingerprint"] = "other"
    assert why_apart(one, two) == "other data or held-out masks"
    two.settings["validation.mask_rate"] = 0.15
    assert why_apart(one, two) == "" and why_apart(one, two, "loss") == "other data or masks"
    assert groups_of([one, two, third]) == [[one, two, third]]
    assert groups_of([one, two, third], "loss") == [[one, third], [two]]
    third.settings["validation.mask_rate"] = 0.15
    assert why_apart(one, third) == ""
    third.settings["validation.mask_rate"] = 0.2
    said = "held-out masks at another rate (validation.mask_rate=0.2)"
    assert why_apart(one, third) == said and why_apart(one, third, "loss") == ""


def test_losses() -> None:
    """What else there is always compares."""
    names = ("loss", "validation_mask_loss", "validation_mlm_accuracy")
    assert [*filter(is_loss, (*names, "loss_spikes", "tokens_per_second", "grad_norm"))] == [*names]

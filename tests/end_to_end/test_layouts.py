"""Every ZeRO stage on one rank and on three saves its state and loads that of any other."""

import json
from pathlib import Path

import pytest

from tests.pipeline.conftest import forkrun, succeed

LAYOUTS = Path(__file__).with_name("layouts.py")


def test_all_layouts_save_and_load_the_same_bytes(tmp_path: Path) -> None:
    reference: list[float] = []
    for count in (1, 3):
        output = tmp_path / f"{count}.json"
        succeed(*forkrun(LAYOUTS, tmp_path, output, count=count))
        found = json.loads(output.read_text())
        assert len(found) == 5
        for name, layout in found.items():
            case = f"{name} on {count} ranks"
            reference = reference or layout["losses"]
            assert layout["losses"] == pytest.approx(reference, rel=1e-5), case
            assert reference[-1] < reference[0] - 0.05
            for source in ("own", "first"):
                assert layout[source]["equal"], f"{case}: other bytes than {source}"
                losses = layout[source]["losses"]
                assert losses == pytest.approx(layout["losses"][-10:], rel=1e-5), (case, source)
            assert layout["own"]["losses"] == layout["losses"][-10:], case

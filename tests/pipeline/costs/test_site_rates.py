from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.costs.site_rates import (
    KEPT,
    MeasuredRate,
    SiteRates,
    add_rate,
    key,
    median_flops,
    read_site,
    site_file,
)
from pipeline.errors import DataError
from tests.pipeline.costs.test_training_time import rate

NAME = key("roberta_tiny", "cpu", "fp32")


def test_rates_are_written_and_read(tmp_path: Path) -> None:
    file = tmp_path / "new" / "site.json"
    for flops in range(1, KEPT + 3):
        add_rate(file, NAME, rate(flops))
    add_rate(file, key("bert_base", "H100", "bf16"), rate(7))
    found = read_site(file).find("roberta_tiny", "cpu", "fp32")
    assert [each.flops for each in found] == list(range(3, KEPT + 3))  # the newest
    assert median_flops(found) == (3, 7, 11)
    assert isinstance(found[0], MeasuredRate)
    assert read_site(file).find("roberta_tiny", "H100", "fp32") == ()
    assert {path.name for path in file.parent.iterdir()} == {"site.json", ".site.json.lock"}


def test_a_site_without_a_file_has_no_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_site(tmp_path / "site.json") == SiteRates() == read_site(None)
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path))
    assert site_file() == tmp_path / "site.json"
    monkeypatch.delenv("TENFOLD_ROOT")
    assert site_file() is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "it is empty"),
        ('{"schema_version": 2, "rates": {}}', "schema version 2, not 1"),
        ('{"schema_version": 1, "rates": {"x": [{"flops": 1}]}}', "is missing"),
        ('{"schema_version": 1, "rates": []}', "rates is a list, not an object"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path: Path, content: str, why: str) -> None:
    file = tmp_path / "site.json"
    file.write_text(content)
    with pytest.raises(DataError, match=f"site.json cannot be read .*{why}.*remove it"):
        read_site(file)


@pytest.mark.parametrize("value", [0, -1.0, float("inf"), float("nan"), 5e-324, 1e308])
def test_impossible_rates_are_refused(tmp_path: Path, value: float) -> None:
    file = tmp_path / "site.json"
    add_rate(file, NAME, rate(5))
    content = json.loads(file.read_text())
    content["rates"][NAME][0]["flops"] = value
    file.write_text(json.dumps(content))
    with pytest.raises(DataError, match="has a rate that no machine reaches"):
        read_site(file)

import json
import math
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.base.files import one_at_a_time
from pipeline.costs import site_rates
from pipeline.costs.site_rates import (
    KEPT,
    MachineRates,
    MeasuredRate,
    SiteRates,
    add_rate,
    key,
    machine_key,
    median_flops,
    read_site,
    site_file,
)
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


def test_without_a_file_no_rates_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_site(tmp_path / "site.json") == SiteRates() == read_site(None)
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path))
    assert site_file() == tmp_path / "site.json"
    monkeypatch.delenv("TENFOLD_ROOT")
    assert site_file() is None


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "site.json"
    for content, why in (
        ("", "empty"),
        ('{"schema_version": 2, "rates": {}}', "version 2, not 1"),
        ('{"schema_version": 1, "rates": {"x": [{"flops": 1}]}}', "missing"),
        ('{"schema_version": 1, "rates": []}', "rates is a list"),
    ):
        file.write_text(content)
        with pytest.raises(DataError, match=f"site.json .*{why}"):
            read_site(file)


def link(bandwidth: float, flops: float = 50e9) -> MachineRates:
    return MachineRates(
        flops=flops, bus_bandwidth=bandwidth, ranks=2, measured_at="2026-11-23T10:00:00Z",
        versions={"torch": "2"},
    )  # fmt: skip


def test_a_number_that_no_machine_reaches_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "site.json"
    add_rate(file, NAME, rate(5))
    add_rate(file, machine_key("cpu", 2, 1), link(2e9))
    good = file.read_text()
    numbers = ("flops", "step_seconds", "sequences_per_second", "ranks")
    cases = [("rates", "flops", each) for each in (0, math.inf, math.nan, 5e-324, 1e308)]
    cases += [("rates", name, -1) for name in numbers]
    cases += [("machines", name, -1) for name in ("flops", "bus_bandwidth", "ranks")]
    for section, name, value in cases:
        content = json.loads(good)
        (found,) = content[section].values()
        found[0][name] = value
        file.write_text(json.dumps(content))
        with pytest.raises(DataError, match="no machine"):
            read_site(file)


def test_the_doctor_s_rates_are_of_their_machines(tmp_path: Path) -> None:
    file = tmp_path / "site.json"
    add_rate(file, NAME, rate(5))
    for bandwidth in (2e9, 3e9):
        add_rate(file, machine_key("cpu", 2, 1), link(bandwidth))
    add_rate(file, machine_key("cpu", 1, 1), link(0, flops=60e9))
    found = read_site(file)
    assert [each.bus_bandwidth for each in found.links("cpu", 2, 1)] == [2e9, 3e9]
    assert found.links("cpu", 1, 2) == found.links("H100", 2, 1) == ()
    assert found.links("cpu", 1, 1) == ()  # alone
    assert sorted(each.flops for each in found.products("cpu")) == [50e9, 50e9, 60e9]
    assert found.products("H100") == () and found.find("roberta_tiny", "cpu", "fp32")
    content = json.loads(file.read_text())
    del content["machines"]  # as files were before the doctor wrote any
    file.write_text(json.dumps(content))
    assert read_site(file).products("cpu") == () and read_site(file).rates == found.rates


def test_a_locked_file_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_rates, "_LOCK_SECONDS", 0.0)
    file = tmp_path / "site.json"
    lock = tmp_path / ".site.json.lock"
    with one_at_a_time(lock), pytest.raises(DataError, match=f"{lock} is locked"):
        add_rate(file, NAME, rate(5))
    add_rate(file, NAME, rate(5))

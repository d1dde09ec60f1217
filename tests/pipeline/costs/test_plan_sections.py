import json

from pipeline.costs.estimate import Estimate
from pipeline.costs.plan_sections import NOT_COUNTED, CostPlan, PlanSection, format_value
from pipeline.planning.mixtures import CorpusUse


def test_values_have_three_digits_and_a_unit() -> None:
    for value, unit, expected in (
        (1.424e9, "bytes", "1.42 GB"), (8, "bytes", "8 B"), (0.0123, "seconds", "12.3 ms"),
        (90, "seconds", "90 s"), (0.5, "hours", "30 min"), (100, "hours", "4.17 days"),
        (0.965, "share", "96.5 %"), (249e9, "tokens", "249 G"), (12_345.6, "", "12,346"),
    ):  # fmt: skip
        assert format_value(value, unit) == expected


def test_every_figure_has_its_basis_and_assumption_in_text_and_json() -> None:
    parts = [
        Estimate("step", 0.36, "seconds", "published", "at 37 %", 0.31, 0.555),
        Estimate("weights", 711e6, "bytes", "computed", "bf16"),
    ]
    sections = [PlanSection("step", "seconds", parts), PlanSection("traffic", "none", [])]
    mixtures = [[CorpusUse("yo", 100, 0.25, 12.5, "yor")], []]
    plan = CostPlan(
        "a_run", "1 node", [{"rows": 3}], ["model: 5"], mixtures, sections, ["too short"],
        [("time", "1 h")],
    )  # fmt: skip
    lines = plan.to_lines()
    assert lines[:2] == ["a_run on 1 node", "  time       1 h"] and "  model: 5" in lines
    assert any("360 ms  310 to 555 ms" in line and "published: at 37 %" in line for line in lines)
    assert any("711 MB" in line and "computed: bf16" in line for line in lines)
    assert not any("traffic" in line for line in lines)
    assert all(any(words in line for line in lines) for words in NOT_COUNTED)
    content = json.loads(plan.to_json())
    assert content["sections"]["step"][0]["low"] == 0.31
    assert content["answer"] == {"time": "1 h"}
    use = {"corpus": "yo", "tokens": 100, "share": 0.25, "passes": 12.5, "language": "yor"}
    assert content["mixtures"] == [[use], []]
    assert content["plans"] == [{"rows": 3}] and content["warnings"] == ["too short"]

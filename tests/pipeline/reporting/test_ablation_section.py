"""A table says what is significant and what is not, noise first; damage is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.base.errors import DataError
from pipeline.reporting.ablation_section import read_ablation_report
from pipeline.reporting.renderings import as_page, as_text

COST = {
    "steps": 100.0, "tokens": 12_345.0, "sequences": 100.0, "flops": 1.5e13, "seconds": 61.0,
    "memory_gb": 1.25, "parameters": 99_000.0,
}  # fmt: skip


def difference(mean: float, significant: bool, **more: Any) -> dict[str, Any]:
    return {
        "mean": mean, "standard_deviation": 0.01, "low": mean - 0.02, "high": mean + 0.02,
        "p": 0.004, "p_holm": 0.0004 if significant else 0.31, "significant": significant,
        "visible": 0.0312, "seeds": 5, **more,
    }  # fmt: skip


def arm(name: str, mean: float, row: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "changes": [], "published": {}, "cost": COST, "peak_lr": 0.01,
        "measures": {"mask_loss": {"mean": mean}}, "missing": {}, "tuning": [],
        "differences": {"mask_loss": row} if row else {}, "initial_weights": "all",
        "finished": [0, 1, 2, 3, 4], "diverged": [], "not_compared": {}, **more,
    }  # fmt: skip


def content() -> dict[str, Any]:
    noise = difference(0.0021, False)
    del noise["p_holm"], noise["significant"]
    return {
        "table": {"name": "a/b", "title": "<one> against two", "source": "Paper, table 1",
                  "note": "read with care", "measures": ["SST-2"]},
        "baseline": "one", "seeds": 5, "tuned": False, "factors": [], "target_loss": 4.5,
        "equal_tokens": True, "noise": {"mask_loss": noise}, "generated": False,
        "references": {}, "runs": [], "fine_tuning": None,
        "arms": [
            arm("one", 4.0, None, published={"SST-2": 92.5}),
            arm("two", 3.9, difference(-0.1, True, bootstrap={"low": -0.2, "high": -0.05})),
            arm("three", 4.01, difference(0.01, False), published={"SST-2": 92.9}),
            arm("four", 4.01, None, measures={}, missing={"mask_loss": "another tokenizer"}),
        ],
    }  # fmt: skip


def shown(tmp_path: Path, found: dict[str, Any]) -> str:
    (tmp_path / "ablation.json").write_text(json.dumps(found))
    return as_text(read_ablation_report(tmp_path))


def test_what_is_said(tmp_path: Path) -> None:
    text = shown(tmp_path, content())
    for line in (
        "two: -0.1000 nats to one, better, p < 0.001",
        "three: +0.0100 nats to one, not significant; differences from 0.0312 on would have been "
        "seen",
        "four: no difference is known; another tokenizer",
        "  equal tokens",
        "  peak learning rates are not tuned",
        "  note: read with care",
        "  two: -0.2000 to -0.0500 if held-out sequences are resampled, too (multi-bootstrap)",
        "  four, mask_loss: another tokenizer",
    ):
        assert line in text.splitlines(), line
    rows = [line for line in text.splitlines() if line.startswith("  ")]
    order = [i for i, row in enumerate(rows) if row.split(",")[0].split()[0] in ("the", "two")]
    assert order[0] < order[-1]
    table = [" ".join(row.split()) for row in rows]
    assert "two 3.9000 -0.1000 -0.1200 to -0.0800 < 0.001 0.0312 significant" in table
    assert "three 4.0100 +0.0100 -0.0100 to +0.0300 0.310 0.0312 not significant" in table
    assert "the same, other seeds +0.0021 -0.0179 to +0.0221 0.0312 noise" in table
    assert "1.5e+13" in text and "12,345" in text
    assert "92.9" in text and "at the paper's scale" in text


def test_runs_that_diverged_are_counted_and_their_bias_is_said(tmp_path: Path) -> None:
    found = content()
    one, two, three, four = found["arms"]
    one["diverged"] = [{"seed": 7, "why": "<spikes>"}]
    two |= {"finished": [0, 1, 2, 4], "diverged": [{"seed": 3, "why": "the gradient was not"}]}
    two["differences"]["mask_loss"] |= {"biased": True, "seeds": 4}
    found["noise"]["mask_loss"] |= {"biased": True, "seeds": 4}
    why = "seeds that finished in it and in one: 1 of 5; a comparison needs 2"
    three |= {"differences": {}, "not_compared": {"mask_loss": why}, "finished": [0]}
    three["diverged"] = [{"seed": seed, "why": "x"} for seed in (1, 2, 3, 4)]
    four |= {"finished": [], "cost": {}, "missing": {"mask_loss": "every run diverged"}}
    four["diverged"] = [{"seed": seed, "why": "x"} for seed in range(5)]
    text = shown(tmp_path, found)
    table = [" ".join(line.split()) for line in text.splitlines()]
    assert table[:3] == [
        "two: -0.1000 nats to one, better, p < 0.001; biased, as only 4 of 5 seeds finished in "
        "both (two: 1 of 5 runs diverged)",
        f"three: no difference is known; {why}",
        "four: no difference is known; four: 5 of 5 runs diverged",
    ]
    start = table.index("Runs that diverged")
    assert "both are biased in favour of an arm whose worst runs diverged" in table[start + 1]
    assert {"one:7: <spikes>", "two:3: the gradient was not"} <= {*table}
    for row in (
        "one 5 0",
        "the same, other seeds 4 1",
        "two 4 1",
        "three 1 4",
        "four 0 5",
        "two 3.9000 -0.1000 -0.1200 to -0.0800 < 0.001 0.0312 significant; biased: 4 of 5 seeds "
        "finished in both",
        "the same, other seeds +0.0021 -0.0179 to +0.0221 0.0312 noise; biased: 4 of 5 seeds "
        "finished in both",
        f"three 4.0100 {why}",
        "four four: 5 of 5 runs diverged",
        "four 0.01 5 of 5 runs diverged",
    ):
        assert row in table, row
    page = as_page(read_ablation_report(tmp_path))
    assert "1 of 5 runs diverged" in page and "one:7: &lt;spikes&gt;" in page


def test_a_page_is_escaped(tmp_path: Path) -> None:
    shown(tmp_path, content())
    page = as_page(read_ablation_report(tmp_path))
    assert "&lt;one&gt; against two" in page and "<one>" not in page


def test_other_designs_are_said(tmp_path: Path) -> None:
    found = content() | {"equal_tokens": False, "tuned": True, "factors": [0.5, 1.0, 2.0]}
    points = [
        {"factor": factor, "peak_lr": 0.01 * factor, "measures": {"mask_loss": 4.0}, "error": ""}
        for factor in (0.5, 1.0, 2.0)
    ]
    for each, rate in zip(found["arms"], (0.01, 0.02, 0.01, 0.01), strict=True):
        each |= {"tuning": points, "peak_lr": rate}
    found["arms"][2]["tuning"] = [point | {"measures": {}, "error": "x"} for point in points]
    found["arms"][3]["tuning"] = [point | {"measures": {}} for point in points]
    text = shown(tmp_path, found)
    assert "the arms did not read equally many tokens" in text
    assert "the best of 0.5, 1, 2 x the recipe's" in text
    assert "  two: the best rate is at the edge of the grid" in text
    assert "  one: the best rate" not in text and "one: the rate was chosen" not in text
    assert "  three: 3 of 3 runs with other rates diverged" in text
    assert "three: the rate was chosen" not in text
    assert (
        "  four: the rate was chosen by the loss on its own held-out masks, as another tokenizer"
    ) in text
    found["fine_tuning"] = {"tasks": ["sst2", "rte"], "protocol": "electra", "seeds": 3}
    for each in found["arms"]:
        each["measures"] |= {"fine-tuned": {"mean": 0.8}, "fine-tuned/rte accuracy": {"mean": 0.6}}
    text = shown(tmp_path, found)
    assert "by the protocol of electra, with equal fine-tuning seeds for equal seeds, 3 per" in text
    assert "\nFine-tuned, mean score of the tasks; higher is better\n" in text
    assert "\nFine-tuned: rte accuracy; higher is better\n" in text
    for each in found["arms"]:
        each["differences"] = {}
    text = shown(tmp_path, found | {"seeds": 1, "noise": {}})
    assert "two: no difference is known; one seed has no interval, give --seeds 2 or more" in text


def test_a_measure_that_the_baseline_lacks(tmp_path: Path) -> None:
    found = content()
    found["arms"][0]["missing"] = {"pair_accuracy/next": "no head for pairs"}
    found["arms"][1]["measures"]["pair_accuracy/next"] = {"mean": 0.75}
    table = [" ".join(row.split()) for row in shown(tmp_path, found).splitlines()]
    start = table.index("Pair accuracy: next; higher is better")
    assert table[start + 2 : start + 4] == [
        "one, the baseline no head for pairs",
        "two 0.7500 the baseline lacks it: no head for pairs",
    ]  # fmt: skip


def test_an_arm_without_any_part_of_a_measure_is_given_its_own_reason(tmp_path: Path) -> None:
    found = content()
    for each in found["arms"][:2]:
        each["measures"]["grammar/agreement"] = {"mean": 0.75}
    found["arms"][3]["missing"] |= {"grammar": "a generator predicts the words"}
    table = [" ".join(row.split()) for row in shown(tmp_path, found).splitlines()]
    start = table.index("Grammar: agreement; higher is better")
    assert "four a generator predicts the words" in table[start : start + 8]


def test_published_figures_have_the_same_decimals(tmp_path: Path) -> None:
    found = content()
    for each, value in zip(found["arms"], (84.0, 78.7, 1234567.0), strict=False):
        each["published"] = {"SST-2": value} if value < 100 else {"parameters": value}
    table = [" ".join(row.split()) for row in shown(tmp_path, found).splitlines()]
    start = table.index("Published")
    assert {"one 84.0", "two 78.7", "three 1234567"} <= {*table[start:]}


def test_an_arm_takes_the_place_of_a_baseline_without_a_measure(tmp_path: Path) -> None:
    found = content() | {"references": {"pair_accuracy/next": "two"}}
    found["arms"][0]["missing"] = {"pair_accuracy/next": "no head for pairs"}
    for each, mean in zip(found["arms"][1:3], (0.75, 0.5), strict=True):
        each["measures"]["pair_accuracy/next"] = {"mean": mean}
    found["arms"][2]["differences"]["pair_accuracy/next"] = difference(-0.25, True)
    table = [" ".join(row.split()) for row in shown(tmp_path, found).splitlines()]
    start = table.index("Pair accuracy: next; higher is better")
    said = table[start + 1 : start + 6]
    assert any(line.startswith("one lacks it, so arms are compared with two,") for line in said)
    assert "two, in its place 0.7500" in said
    assert "three 0.5000 -0.2500 -0.2700 to -0.2300 < 0.001 0.0312 significant" in table


def test_seeds_that_differ_alike_say_that_so_few_reach_nothing(tmp_path: Path) -> None:
    found = content()
    same = {"standard_deviation": 0.0, "visible": None, "p": 0.0625, "p_holm": 0.125}
    found["arms"][1] = arm("two", 3.9, difference(-0.1, False) | same)
    text = " ".join(shown(tmp_path, found).split())
    said = "the same in all 5 seeds; 5 seeds cannot reach 5 %: their sign test has p 0.125"
    assert f"two: -0.1000 nats to one, {said}" in text
    assert "0.125 the same in every seed; 5 seeds cannot reach 5 %: their sign test has p" in text
    same |= {"p": 0.03125, "p_holm": 0.0625, "seeds": 6}
    found["arms"][1] = arm("two", 3.9, difference(-0.1, False) | same)
    assert "6 seeds cannot reach 5 % with so many arms: " in shown(tmp_path, found)


def test_identical_arms_are_said(tmp_path: Path) -> None:
    found = content()
    same = difference(0.0, False) | {"standard_deviation": 0.0, "visible": None}
    found["arms"][1] = arm("two", 4.0, same)
    text = shown(tmp_path, found)
    assert "identical in every seed" in text
    assert "two: +0.0000 nats to one, the same in all 5 seeds\n" in text


def test_runs_that_skipped_something_are_named(tmp_path: Path) -> None:
    assert "skipped something" not in shown(tmp_path, content())
    runs = [
        {"arm": "one", "seed": 0, "recovered": {}},
        {"arm": "two", "seed": 3, "recovered": {"skipped_updates": 2, "left_out": "a.arrow"}},
    ]
    text = shown(tmp_path, content() | {"runs": runs})
    assert "  two:3: 2 steps without an update, shards left out: a.arrow\n" in text
    assert "one:0" not in text


def test_it_is_said_that_a_generator_predicts_the_words(tmp_path: Path) -> None:
    text = shown(tmp_path, content() | {"generated": True})
    assert "two: -0.1000 nats to one of the generator, better" in text
    assert "  words are predicted by the generator, not by the model that is kept" in text


@pytest.mark.parametrize("damaged", ["[]", "{", '{"table": 3}', json.dumps({"arms": []}),
                                     json.dumps(content() | {"arms": []})])  # fmt: skip
def test_damage(tmp_path: Path, damaged: str) -> None:
    (tmp_path / "ablation.json").write_text(damaged)
    with pytest.raises(DataError, match="cannot be read"):
        read_ablation_report(tmp_path)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="finish pipeline"):
        read_ablation_report(tmp_path)

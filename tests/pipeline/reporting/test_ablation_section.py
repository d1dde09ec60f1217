"""A table says what is significant and what is not, noise first; damage is one line."""

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


def shown(folder: Path, found: dict[str, Any]) -> list[str]:
    """Lines of the text, spaces joined."""
    (folder / "ablation.json").write_text(json.dumps(found))
    text = as_text(read_ablation_report(folder))
    return [" ".join(line.split()) for line in text.splitlines()]


def test_what_is_said(tmp_path: Path) -> None:
    lines = shown(tmp_path, content())
    assert lines[:3] == [
        "two: -0.1000 nats to one, better, p < 0.001",
        "three: +0.0100 nats to one, not significant; differences from 0.0312 on would have been "
        "seen",
        "four: no difference is known; another tokenizer",
    ]
    noise = lines.index("the same, other seeds +0.0021 -0.0179 to +0.0221 0.0312 noise")
    two = lines.index("two 3.9000 -0.1000 -0.1200 to -0.0800 < 0.001 0.0312 significant")
    assert noise < two
    assert {
        "equal tokens", "peak learning rates are not tuned", "note: read with care",
        "two: -0.2000 to -0.0500 if held-out sequences are resampled, too (multi-bootstrap)",
        "four, mask_loss: another tokenizer",
        "three 4.0100 +0.0100 -0.0100 to +0.0300 0.310 0.0312 not significant",
    } <= {*lines}  # fmt: skip
    text = "\n".join(lines)
    assert all(part in text for part in ("1.5e+13", "12,345", "92.9", "at the paper's scale"))
    assert "skipped something" not in text
    page = as_page(read_ablation_report(tmp_path))
    assert "&lt;one&gt; against two" in page and "<one>" not in page


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
    lines = shown(tmp_path, found)
    biased = "4 of 5 seeds finished in both"
    assert lines[:3] == [
        "two: -0.1000 nats to one, better, p < 0.001; "
        f"biased, as only {biased} (two: 1 of 5 runs diverged)",
        f"three: no difference is known; {why}",
        "four: no difference is known; four: 5 of 5 runs diverged",
    ]
    assert "biased in favour" in lines[lines.index("Runs that diverged") + 1]
    assert {
        "one:7: <spikes>", "two:3: the gradient was not",
        "one 5 0", "the same, other seeds 4 1", "two 4 1", "three 1 4", "four 0 5",
        f"two 3.9000 -0.1000 -0.1200 to -0.0800 < 0.001 0.0312 significant; biased: {biased}",
        f"the same, other seeds +0.0021 -0.0179 to +0.0221 0.0312 noise; biased: {biased}",
        f"three 4.0100 {why}",
        "four four: 5 of 5 runs diverged", "four 0.01 5 of 5 runs diverged",
    } <= {*lines}  # fmt: skip
    page = as_page(read_ablation_report(tmp_path))
    assert "1 of 5 runs diverged" in page and "one:7: &lt;spikes&gt;" in page


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
    lines = shown(tmp_path, found)
    text = "\n".join(lines)
    for said in (
        "the arms did not read equally many tokens", "the best of 0.5, 1, 2 x the recipe's",
        "\ntwo: the best rate is at the edge", "\nthree: 3 of 3 runs with other rates diverged",
        "\nfour: the rate was chosen by the loss on its own held-out masks, as another tokenizer",
    ):  # fmt: skip
        assert said in text, said
    for absent in ("\none: the best rate", "one: the rate was", "three: the rate was"):
        assert absent not in text, absent
    found["fine_tuning"] = {"tasks": ["sst2", "rte"], "protocol": "electra", "seeds": 3}
    for each in found["arms"]:
        each["measures"] |= {"fine-tuned": {"mean": 0.8}, "fine-tuned/rte accuracy": {"mean": 0.6}}
    text = "\n".join(shown(tmp_path, found))
    assert "of electra, with equal fine-tuning seeds for equal seeds, 3 per" in text
    assert "\nFine-tuned, mean score of the tasks; higher is better\n" in text
    assert "\nFine-tuned: rte accuracy; higher is better\n" in text
    for each in found["arms"]:
        each["differences"] = {}
    lines = shown(tmp_path, found | {"seeds": 1, "noise": {}})
    assert (
        lines[0] == "two: no difference is known; one seed has no interval, give --seeds 2 or more"
    )


def test_measures_that_an_arm_lacks(tmp_path: Path) -> None:
    """Each has its own reason; an arm takes the place of a baseline without a measure."""
    found = content()
    one, two, three, four = found["arms"]
    one["missing"] = {"pair_accuracy/next": "no head for pairs"}
    two["measures"]["pair_accuracy/next"] = {"mean": 0.75}
    for each in (one, two):
        each["measures"]["grammar/agreement"] = {"mean": 0.75}
    four["missing"] |= {"grammar": "a generator predicts the words"}
    lines = shown(tmp_path, found)
    start = lines.index("Pair accuracy: next; higher is better")
    assert lines[start + 2 : start + 4] == [
        "one, the baseline no head for pairs",
        "two 0.7500 the baseline lacks it: no head for pairs",
    ]
    start = lines.index("Grammar: agreement; higher is better")
    assert "four a generator predicts the words" in lines[start : start + 8]
    found["references"] = {"pair_accuracy/next": "two"}
    three["measures"]["pair_accuracy/next"] = {"mean": 0.5}
    three["differences"]["pair_accuracy/next"] = difference(-0.25, True)
    lines = shown(tmp_path, found)
    start = lines.index("Pair accuracy: next; higher is better")
    said = lines[start + 1 : start + 6]
    assert any(line.startswith("one lacks it, so arms are compared with two,") for line in said)
    assert "two, in its place 0.7500" in said
    assert "three 0.5000 -0.2500 -0.2700 to -0.2300 < 0.001 0.0312 significant" in lines


def test_published_figures_have_the_same_decimals(tmp_path: Path) -> None:
    found = content()
    for each, value in zip(found["arms"], (84.0, 78.7, 1234567.0), strict=False):
        each["published"] = {"SST-2": value} if value < 100 else {"parameters": value}
    assert {"one 84.0", "two 78.7", "three 1234567"} <= {*shown(tmp_path, found)}


def test_seeds_that_differ_alike_say_that_so_few_reach_nothing(tmp_path: Path) -> None:
    cases: tuple[tuple[float, dict[str, Any], str], ...] = (
        (-0.1, {"p": 0.0625, "p_holm": 0.125},
         "5 seeds cannot reach 5 %: their sign test has p 0.125"),
        (-0.1, {"p": 0.03125, "p_holm": 0.0625, "seeds": 6},
         "6 seeds cannot reach 5 % with so many arms: "),
        (0.0, {}, ""),
    )  # fmt: skip
    for mean, changes, said in cases:
        found = content()
        row = difference(mean, False, standard_deviation=0.0, visible=None) | changes
        found["arms"][1] = arm("two", 3.9, row)
        lines = shown(tmp_path, found)
        alike = f"two: {mean:+.4f} nats to one, the same in all {row['seeds']} seeds"
        assert lines[0].startswith(f"{alike}; {said}") if said else lines[0] == alike
        table = "\n".join(lines)
        assert (f" the same in every seed; {said}" in table) == bool(said)
        assert ("identical in every seed" in table) == (not said)


def test_what_runs_skipped_and_that_a_generator_predicts_the_words_is_said(tmp_path: Path) -> None:
    found = content() | {"generated": True}
    found["runs"] = [
        {"arm": "one", "seed": 0, "recovered": {}},
        {"arm": "two", "seed": 3, "recovered": {"skipped_updates": 2, "left_out": "a.arrow"}},
    ]
    lines = shown(tmp_path, found)
    assert "two:3: 2 steps without an update, shards left out: a.arrow" in lines
    assert not any("one:0" in line for line in lines)
    assert lines[0].startswith("two: -0.1000 nats to one of the generator, better")
    assert "words are predicted by the generator, not by the model that is kept" in lines


@pytest.mark.parametrize("damaged", ["[]", "{", '{"table": 3}', json.dumps({"arms": []}),
                                     json.dumps(content() | {"arms": []})])  # fmt: skip
def test_damage_and_nothing(tmp_path: Path, damaged: str) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_ablation_report(tmp_path)
    (tmp_path / "ablation.json").write_text(damaged)
    with pytest.raises(DataError, match="cannot be read"):
        read_ablation_report(tmp_path)

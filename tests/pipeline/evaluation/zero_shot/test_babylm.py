"""Sets of BabyLM's evaluation score as its pipeline does, rebuilt here on transformers."""

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import spearmanr
from transformers import AutoModelForMaskedLM, AutoTokenizer

from pipeline import evaluate
from pipeline.config.settings import override
from pipeline.planning.build import build_model
from pipeline.recipes import recipe
from pipeline.training.weights.model_folders import write_folder
from tests.pipeline.preparing import Call

Row = dict[str, Any]
EWOK = [
    {
        "Domain": domain,
        "Context1": f"The {a} is on the {b}.",
        "Context2": "It is not.",
        "Target1": f"It holds the {a}.",
        "Target2": f"The {a} holds it.",
    }
    for domain, a, b in (
        ("space", "cup", "table"),
        ("space", "cat", "roof"),
        ("force", "man", "ox"),
    )
]
COMPS = [
    {"prefix_acceptable": f"A {good}", "prefix_unacceptable": f"A {bad}", "property_phrase": rest}
    for good, bad, rest in (("bird", "table", "can fly."), ("dog", "stone", "barks at night."))
]
ENTITY = [
    {
        "numops": ops,
        "input_prefix": f"Box 0 contains the {a}, Box 1 contains the {b}. Box 0 holds ",
        "options": [f"the {a}.", f"the {b}.", "nothing.", "the hat and the key."],
    }
    for ops, a, b in ((0, "cup", "map"), (0, "old coat", "rose"), (1, "drum", "cake"))
]
SUPPLEMENT = [
    {"sentence_good": "A: Who sang?\nB: Sarah.", "sentence_bad": "A: Who sang?\nB: The patio."},
    {"sentence_good": "A tie.", "sentence_bad": "A tie."},
]
WUG = [
    {"sentences": f"From {word}: {word}{first}\tFrom {word}: {word}{second}", "ratio": ratio}
    for word, first, second, ratio in (
        ("drin", "ability", "ableness", 0.3),
        ("wup", "ness", "ity", 0.9),
        ("blick", "ableness", "ability", 0.6),
        ("fep", "ity", "ness", 0.5),
    )
]
FILES: dict[str, tuple[str, list[Row]]] = {
    "ewok_filtered/all.jsonl": ("ewok", EWOK),
    "comps/comps_wugs_dist-before.jsonl": ("comps", COMPS),
    "entity_tracking/regular.jsonl": ("entity_tracking", ENTITY),
    "entity_tracking/ambiref.jsonl": ("entity_tracking", ENTITY[1:]),
    "supplement_filtered/turns.jsonl": ("blimp", SUPPLEMENT),
    "wug_adj_nominalization/wug_adj_nominalization.jsonl": ("wug_adj", WUG),
}


def write(folder: Path, name: str, rows: list[Row]) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.fixture(scope="module")
def model(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = ["encoder.positions=400", "encoder.initializer_range=0.1", "encoder.layers=1"]
    built = build_model(override(recipe("roberta_tiny"), settings), seed=0).eval()
    folder = tmp_path_factory.mktemp("babylm") / "model"
    write_folder(built, tiny_tokenizer, folder)
    return folder


@pytest.fixture(scope="module")
def score_of(model: Path) -> Callable[[str, str], float]:
    """score_of(prefix, completion): one token of it masked at a time, in a loop."""
    theirs = AutoModelForMaskedLM.from_pretrained(model).eval()
    tokenizer = AutoTokenizer.from_pretrained(model)

    @torch.no_grad()
    def score(prefix: str, completion: str) -> float:
        encoded = tokenizer(prefix + completion, return_offsets_mapping=True)
        ids, total = torch.tensor(encoded["input_ids"]), 0.0
        for place, (_, end) in enumerate(encoded["offset_mapping"]):
            if end > len(prefix):
                shown = ids.clone()
                shown[place] = tokenizer.mask_token_id
                logits = theirs(shown[None]).logits[0, place]
                total += float(logits.log_softmax(-1)[ids[place]])
        return total

    return score


def options(row: Row) -> list[tuple[str, str]]:
    """What is seen and what is scored, the right one first."""
    if "Context1" in row:
        return [(row["Context1"], " " + row[target]) for target in ("Target1", "Target2")]
    if "property_phrase" in row:
        sides = row["prefix_acceptable"], row["prefix_unacceptable"]
        return [(f"{side} ", row["property_phrase"]) for side in sides]
    if "options" in row:
        return [(row["input_prefix"], option) for option in row["options"]]
    sentences = [row[side] for side in ("sentence_good", "sentence_bad") if side in row]
    return [("", each) for each in sentences or row["sentences"].split("\t")]


def uid(row: Row, stem: str) -> str:
    if "numops" in row:
        return f"{stem}_{row['numops']}_ops"
    return str(row.get("UID") or row.get("Domain") or ("wug_adj" if "ratio" in row else stem))


def check(folder: Path, model: Path, score_of: Callable[[str, str], float], call: Call) -> Row:
    """Compare all predictions with the loop's; the command's fields."""
    asked = ("--babylm", folder, "--predictions", folder / "out", "--json")
    found: Row = json.loads(call(evaluate.main, model, *asked))["babylm"]
    for path in sorted(set(folder.glob("*/*.jsonl")) - set(folder.glob("glue*/*"))):
        assert found["sets"][path.parent.name]["pll"] == "token"
        folders = {name.split("/")[0]: task for name, (task, _) in FILES.items()}
        task = folders.get(path.parent.name, "blimp")
        written = json.loads(
            (folder / "out" / task / path.parent.name / "predictions.json").read_text()
        )
        expected: dict[str, list[Row]] = {}
        shares, ratios = [], []
        for row in map(json.loads, path.read_text().splitlines()):
            sides = options(row)
            sums = torch.tensor([score_of(*side) for side in sides])
            chosen = int(sums.argmax())
            text = "".join(sides[chosen]) if task == "comps" else sides[chosen][1]
            name = uid(row, path.stem.removeprefix("comps_").replace("-", "_"))
            rows = expected.setdefault(name, [])
            entry: Row = {"id": f"{name}_{len(rows)}", "pred": text}
            if task == "wug_adj":
                shares.append(float(sums.softmax(0)[0]))
                ratios.append(row["ratio"])
                entry["prob"] = pytest.approx(shares[-1], abs=1e-4)
            rows.append(entry)
        assert expected.items() <= {k: v["predictions"] for k, v in written.items()}.items()
        if task == "wug_adj":
            rho = found["sets"][path.parent.name]["overall"]["ties_right"]
            assert rho == pytest.approx(spearmanr(shares, ratios)[0])
    return found


def test_each_form_equals_a_plain_loop_over_transformers(
    model: Path, score_of: Callable[[str, str], float], tmp_path: Path, call: Call
) -> None:
    for name, (_, rows) in FILES.items():
        write(tmp_path, name, rows)
    write(tmp_path, "reading/reading_data.csv", [])
    write(tmp_path, "glue_filtered/rte.valid.jsonl", [{"sentence1": "a", "label": 1}])
    found = check(tmp_path, model, score_of, call)
    assert len(found["sets"]) == 5
    assert found["not_scored"].keys() == {"glue_filtered", "reading"}
    tied = found["sets"]["supplement_filtered"]["overall"]
    assert tied["ties"] == 1 and tied["ties_right"] == tied["accuracy"] + 0.25
    kinds = found["sets"]["entity_tracking"]
    means = [kinds["phenomena"][kind]["ties_right"] for kind in ("regular", "ambiref")]
    assert kinds["overall"]["ties_right"] == pytest.approx(sum(means) / 2)
    printed = call(evaluate.main, model, "--babylm", tmp_path, "--predictions", tmp_path / "out")
    assert "PLL per token" in printed and "a tie is right" in printed


def test_published_sets_equal_a_plain_loop_over_transformers(
    model: Path, score_of: Callable[[str, str], float], tmp_path: Path, call: Call, real_data: Path
) -> None:
    for file in sorted((real_data / "eval/BabyLM").glob("*/*.jsonl")):
        few = 8 if file.parent.name.startswith("wug") else 1
        with file.open() as lines:
            rows = [json.loads(line) for line in islice(lines, few)]
        if file.parent.name != "blimp_filtered" or file.stem < "b":
            write(tmp_path, f"{file.parent.name}/{file.name}", rows)
    if not any(tmp_path.iterdir()):
        pytest.skip("no sets of BabyLM in the test data")
    assert len(check(tmp_path, model, score_of, call)["sets"]) == 4


def test_a_set_that_is_too_long_is_named_and_the_others_are_scored(
    model: Path, tmp_path: Path, call: Call
) -> None:
    long = [ENTITY[0] | {"input_prefix": "the " * 500}]
    write(tmp_path, "set/a.jsonl", [*ENTITY, *long])
    asked = (model, "--babylm", tmp_path, "--predictions", tmp_path / "out")
    assert "4 of 16 texts are too long" in call(evaluate.main, *asked, code=2)
    write(tmp_path, "other/a.jsonl", COMPS)
    found = json.loads(call(evaluate.main, *asked, "--json"))["babylm"]
    assert found["sets"].keys() == {"other"} and "400 positions" in found["not_scored"]["set"]
    assert "set is not scored: " in call(evaluate.main, *asked)
    assert [path.name for path in (tmp_path / "out").glob("*/*")] == ["other"]
    alone = json.loads(call(evaluate.main, *asked[:2], tmp_path / "other", *asked[3:], "--json"))
    assert alone["babylm"]["sets"] == found["sets"]


def test_damaged_sets_are_refused_with_the_line_and_the_field(
    model: Path, tmp_path: Path, call: Call
) -> None:
    for rows, said in (
        ([], "is empty"),
        ([{"question": "Who?"}], "set: no .jsonl file of sentences"),
        ([EWOK[0], {"Domain": "x"}], "a.jsonl:2: Context1"),
        ([EWOK[0], EWOK[0] | {"Target2": " "}], "a.jsonl:2: Target2"),
        ([COMPS[0] | {"property_phrase": 1}], "a.jsonl:1: property_phrase"),
        ([ENTITY[0] | {"options": ["one"]}], "a.jsonl:1: options"),
        ([ENTITY[0] | {"options": ["one", 2]}], "a.jsonl:1: options"),
        ([ENTITY[0] | {"numops": "1"}], "a.jsonl:1: numops"),
        ([WUG[0] | {"ratio": 3}], "a.jsonl:1: ratio is 3"),
        ([WUG[0] | {"sentences": "only one"}], "a.jsonl:1: sentences"),
        ([EWOK[0], COMPS[0]], "a.jsonl:2: Context1"),
    ):
        write(tmp_path, "set/a.jsonl", rows)
        assert said in call(evaluate.main, model, "--babylm", tmp_path, code=2)
    write(tmp_path, "set/b.jsonl", COMPS)
    write(tmp_path, "set/a.jsonl", EWOK)
    assert "mixes comps and ewok" in call(evaluate.main, model, "--babylm", tmp_path, code=2)
    (tmp_path / "none").mkdir()
    for folder in (tmp_path / "none", tmp_path / "set/a.jsonl"):
        assert str(folder) in call(evaluate.main, model, "--babylm", folder, code=2)

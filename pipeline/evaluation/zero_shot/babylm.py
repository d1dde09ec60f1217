"""A folder of BabyLM's evaluation data -> a score of each set, and predictions to submit.

A set is a folder of .jsonl files in one of the forms of `grammar_pairs`, whatever a year calls it;
folders of other tasks, and sets that the model cannot read, are named with the reason. The number
to compare with theirs counts a tie as right.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from model.hugging_face.conversion import Model
from pipeline.base.errors import DataError
from pipeline.base.files import write_whole
from pipeline.base.progress import counting
from pipeline.base.typed_json import as_json, as_object
from pipeline.config.formats import Pll
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.evaluation.zero_shot.grammar import (
    GrammarTest,
    Likelihoods,
    PairScore,
    score_grammar,
    score_table,
    share_of_first,
)
from pipeline.evaluation.zero_shot.grammar_pairs import (
    Paradigm,
    form_of,
    pairs_hash,
    read_paradigms,
)


def score_babylm(
    model: Model,
    vocabulary: Vocabulary,
    folder: Path,
    device: torch.device,
    predictions: Path,
    pll: Pll = "token",
) -> tuple[dict[str, Any], str]:
    """Scores of all sets as fields, and their table; the model is on the device.

    predictions: folder for TASK/SET/predictions.json. Raises DataError if a set is malformed, or
    none can be scored.
    """
    not_scored: dict[str, str] = {}
    sets = dict(_read_sets(folder, not_scored))
    predictions.mkdir(parents=True, exist_ok=True)  # before an hour's work
    fields: dict[str, Any] = {}
    rows: dict[str, PairScore] = {}
    for name, paradigms in sets.items():
        try:
            test = GrammarTest.of(paradigms, vocabulary, model.config.positions, pll)
        except DataError as error:  # others may be shorter
            not_scored[name] = str(error)
            continue
        with counting(f"scoring {name}", "masked copies") as on_batch:
            scores = score_grammar(model, test, device, on_batch=on_batch)
        rows[name] = scores.overall
        fields[name] = scores.fields() | {"hash": pairs_hash(paradigms)}
        path = predictions / paradigms[0].task / name / "predictions.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        likely = scores.likelihoods
        content = {each.name: {"predictions": _predict(each, likely)} for each in paradigms}
        write_whole(path, as_json(content).encode())
    if not rows:
        why = next(iter(not_scored.items()), ("it", "no folder of .jsonl files"))
        raise DataError(f"{folder}: nothing to score; {': '.join(why)}")
    left_out = [f"  {name} is not scored: {why}" for name, why in not_scored.items()]
    table = score_table(pll, rows, "a tie is right, as BabyLM counts", "ties_right")
    found = {"sets": fields, "not_scored": not_scored, "predictions": str(predictions)}
    return {"babylm": found}, "\n".join([table, *left_out, f"  predictions are in {predictions}"])


def _read_sets(folder: Path, not_scored: dict[str, str]) -> Iterator[tuple[str, list[Paradigm]]]:
    """Name and paradigms of the folder, if it is a set, and of those in it.

    not_scored: gets the folders of other tasks. Raises DataError if a set is malformed.
    """
    if not folder.is_dir():
        raise DataError(f"--babylm {folder} is no folder; give one of evaluation sets")
    folder = folder.absolute()
    for path in [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]:
        if not _is_set(path):
            if path != folder:
                not_scored[path.name] = "no .jsonl file of sentences to choose from"
            continue
        paradigms = read_paradigms(path)
        tasks = sorted({paradigm.task for paradigm in paradigms})
        if len(tasks) > 1:
            raise DataError(f"{path} mixes {' and '.join(tasks)}; give each a folder of its own")
        yield path.name, paradigms


def _is_set(folder: Path) -> bool:
    for file in sorted(folder.glob("*.jsonl"))[:1]:
        with file.open("rb") as lines:
            try:
                return bool(form_of(as_object(lines.readline())))
            except ValueError:  # it is named when the file is read
                return True
    return False


def _predict(paradigm: Paradigm, likely: Likelihoods) -> list[dict[str, Any]]:
    """The completion that the model chose of each pair, in BabyLM's form."""
    rows = []
    for number, pair in enumerate(paradigm.pairs):
        sums = [likely[side] for side in pair]
        text, start = pair[sums.index(max(sums))]  # of equal ones the first
        row: dict[str, Any] = {"id": f"{paradigm.name}_{number}"}
        row["pred"] = text if paradigm.task == "comps" else text[start:]
        if paradigm.ratios:
            row["prob"] = share_of_first(sums)
        rows.append(row)
    return rows

"""Evaluation of a model: `python -m pipeline.evaluate RUN --data SHARDS`, `--grammar PAIRS`.

Scores a run, or a folder in Hugging Face's format, on held-out sequences with their first masks, or
with masks at the rate that the run was validated with (validation.mask_rate) or --mask-rate names.
Masked language modelling is scored for every family, and first, so that models with and without a
second objective compare on the same shards; ELECTRA's is its generator's. Its loss is also reported
at [MASK] positions only, since predicting a kept or randomly replaced token is a different task.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pipeline.base.errors import run_command
from pipeline.base.model_folder import check_imports
from pipeline.evaluation.evaluate_arguments import parse_evaluate

if __name__ == "__main__":
    run_command(partial(check_imports, parse_evaluate))  # before torch and `model` are imported

from pipeline.cluster.process_group import device_name
from pipeline.data.shards.manifest import VALIDATION
from pipeline.evaluation.held_out import (
    RATE,
    score_held_out,
)
from pipeline.evaluation.reports import print_scores, scores_as_json
from pipeline.evaluation.zero_shot.babylm import score_babylm
from pipeline.evaluation.zero_shot.scored_sentences import score_sentences
from pipeline.loading.compatibility import check_datasets
from pipeline.loading.dataset import Dataset
from pipeline.training.model_or_run import find_vocabulary, load_model
from pipeline.training.weights.model_folders import move_to_device


def main() -> None:
    arguments = parse_evaluate()
    given = load_model(arguments.model)
    rate = given.mask_rate if arguments.mask_rate is None else arguments.mask_rate
    stored = [Dataset.open(path, VALIDATION) for path in arguments.data]
    datasets = [dataset.at_rate(rate) for dataset in stored]
    device = move_to_device(given.model)
    result: dict[str, Any] = {}
    tables: list[str] = []
    if datasets:
        check_datasets(datasets, {}, given.tokenizer_sha256)
        result |= score_held_out(
            given.model, datasets, device, given.attention,
            sequences=arguments.sequences, per_sequence=arguments.per_sequence,
        )  # fmt: skip
        if datasets != stored:  # omitted for stored masks, whose rate the shards state
            result[RATE] = rate
    if arguments.grammar or arguments.babylm or arguments.cloze or arguments.text:
        vocabulary = find_vocabulary(arguments.model, arguments.data, given.model)
        found, tables = score_sentences(
            given.model, vocabulary, datasets, device,
            text=arguments.text, grammar=arguments.grammar, cloze=arguments.cloze,
            pll=arguments.pll,
        )  # fmt: skip
        result |= found
    if arguments.babylm:
        folder, written, pll = arguments.babylm, arguments.predictions, arguments.pll
        found, table = score_babylm(given.model, vocabulary, folder, device, written, pll)
        result |= found
        tables.append(table)
    if arguments.json:
        print(scores_as_json(given.name, device_name(device), result))
    else:
        print_scores(given.name, result)
        print("\n".join(tables), end="\n" if tables else "")


if __name__ == "__main__":
    run_command(main)

"""Evaluation of a model: `python -m pipeline.evaluate RUN --data SHARDS`, `--grammar PAIRS`.

Scores a run, or a folder in Hugging Face's format, on held-out sequences with their first masks, or
with masks at the rate that the run was validated with (validation.mask_rate) or --mask-rate names.
Masked language modelling is scored for every family, and first, so that models with and without a
second objective compare on the same shards; ELECTRA's is its generator's. Its loss is also reported
at [MASK] positions only, since predicting a kept or randomly replaced token is a different task.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.base.errors import ConfigError, DataError, run_command
from pipeline.base.model_folder import check_imports
from pipeline.base.progress import counting
from pipeline.training.arguments import parse_evaluate

if __name__ == "__main__":
    run_command(partial(check_imports, parse_evaluate))  # before torch and `model` are imported

from model.hugging_face.conversion import Model
from model.hugging_face.loss_record import ENTRY, loss_entry
from pipeline.base.files import write_whole
from pipeline.base.null_device import null_entry
from pipeline.cluster.process_group import compute_device, device_name
from pipeline.config.formats import Attention
from pipeline.config.mask_rates import at_rate
from pipeline.data.shards.manifest import VALIDATION
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.evaluation.held_out import (
    SequenceLosses,
    corpus_fields,
    evaluate_corpora,
    in_file_order,
    unmasked,
    validation_loader,
    validation_loaders,
)
from pipeline.evaluation.zero_shot.cloze import fill_masks, read_lines, report_cloze
from pipeline.evaluation.zero_shot.grammar import GrammarTest, report_grammar, score_grammar
from pipeline.evaluation.zero_shot.grammar_pairs import pairs_hash, read_paradigms
from pipeline.evaluation.zero_shot.pseudo_likelihood import (
    MaskableSequence,
    encode_sentences,
    log_probabilities,
    maskable_sequence,
    pseudo_perplexity,
)
from pipeline.evaluation.zero_shot.word_frequencies import count_tokens
from pipeline.loading.compatibility import check_datasets
from pipeline.loading.dataset import Dataset
from pipeline.released.folder import CONFIG
from pipeline.training.checkpoints.read import choose_from
from pipeline.training.run_directory.run_json import read_record
from pipeline.training.weights.folders import load_folder, load_run, place

ROWS = 32
"""Sequences per micro-batch."""
PARTS = {"pair": "pairs", "sbo": "span boundaries", "rtd": "detection", "words": "restored words"}
"""Parts of the loss besides masked language modelling, in words."""
RATE = "mask_rate"
"""Field with the rate of masks that the shards do not store."""
LOSS_OF = "mlm_loss/"
"""Prefix of the fields with each corpus's loss."""


def main() -> None:
    arguments = parse_evaluate()
    sequences, text = split_amount(arguments.pseudo_perplexity)
    if sequences and not arguments.data:
        raise ConfigError(f"--pseudo-perplexity {sequences} reads held-out sequences; give --data")
    if arguments.per_sequence and not arguments.data:
        raise ConfigError("--per-sequence writes losses of held-out sequences; give --data")
    check_rate(arguments.mask_rate, arguments.data)
    if not (arguments.data or arguments.grammar or arguments.cloze or text):
        raise ConfigError("nothing to score; give --data, --grammar, --cloze or a text")
    model, name, sha256, attention, rate = load_model(arguments.model)
    rate = rate if arguments.mask_rate is None else arguments.mask_rate
    stored = [Dataset.open(path, VALIDATION, False) for path in arguments.data]
    datasets = [dataset.at_rate(rate) for dataset in stored]
    result: dict[str, Any] = {}
    if datasets:
        check_datasets(datasets, {}, sha256)
        check_lengths(model, datasets)
        result |= score(model, datasets, sequences, attention, arguments.per_sequence)
        if datasets != stored:
            result[RATE] = rate
    tables = []
    if arguments.grammar or arguments.cloze or text:
        vocabulary = find_vocabulary(arguments.model, arguments.data, model)
        if text:
            result |= score_lines(model, vocabulary, text)
        if arguments.grammar:
            paradigms = read_paradigms(arguments.grammar)
            test = GrammarTest.of(paradigms, vocabulary, model.config.positions)
            counts = count_tokens(datasets, vocabulary.size) if datasets else None
            with counting("scoring", "masked copies") as on_batch:
                scores = score_grammar(model, test, place(model), counts, on_batch=on_batch)
            result["grammar"] = scores.fields() | {"hash": pairs_hash(paradigms)}
            tables.append(report_grammar(scores))
        if arguments.cloze:
            filled = fill_masks(model, vocabulary, read_lines(arguments.cloze), place(model))
            result["cloze"] = [asdict(line) for line in filled]
            tables.append(report_cloze(filled))
    if arguments.json:
        # JSON has no NaN
        unknown = [k for k, found in result.items() if isinstance(found, float) and found != found]
        about = {"model": name, "device": device_name(compute_device())}
        print(json.dumps(about | result | dict.fromkeys(unknown)))
    else:
        report(name, result)
        print("\n".join(tables), end="\n" if tables else "")


def check_rate(rate: float | None, data: Sequence[Path]) -> None:
    """Raises ConfigError for a rate that masks cannot have, or that nothing is masked with."""
    if rate is not None and not 0 <= rate < 1:
        raise ConfigError(f"--mask-rate must be in [0, 1), got {rate:g}")
    if rate is not None and not data:
        raise ConfigError(f"--mask-rate {rate:g} masks held-out sequences; give --data")


def split_amount(given: str) -> tuple[int, Path | None]:
    """The N or the FILE of --pseudo-perplexity."""
    try:
        sequences = int(given or 0)
    except ValueError:
        return 0, Path(given)
    if sequences < 0:
        raise ConfigError(f"--pseudo-perplexity must not be negative, got {sequences}")
    return sequences, None


def find_vocabulary(path: Path, data: list[Path], model: Model) -> Vocabulary:
    """The tokenizer of a folder, or of a run's shards, which may have moved to `data`.

    Raises DataError if there is none, or it is not the model's.
    """
    folder = path
    if not (path / CONFIG).exists():
        directory, _ = choose_from(path)
        folder = data[0] if data else read_record(directory.parent.parent).directories[0]
        folder = folder / "tokenizer"
        if not folder.is_dir():
            raise DataError(
                f"the tokenizer of {path} is no longer at {folder}; export the run and evaluate "
                "the export, or give the shards with --data"
            )
    vocabulary = read_vocabulary(folder)
    if vocabulary.size > model.config.vocab_size:
        raise DataError(
            f"the tokenizer in {folder} has {vocabulary.size:,} ids, the model "
            f"{model.config.vocab_size:,}; give the model its own tokenizer"
        )
    return vocabulary


def score_lines(model: Model, vocabulary: Vocabulary, text: Path) -> dict[str, Any]:
    """Pseudo-perplexity of the lines of a text."""
    lines = read_lines(text)
    sequences = encode_sentences(lines, vocabulary, model.config.positions, within_word=False)
    return _pseudo_perplexity(model, sequences, vocabulary.mask)


def _pseudo_perplexity(
    model: Model, sequences: Sequence[MaskableSequence], mask_id: int
) -> dict[str, Any]:
    with counting("scoring", "masked copies") as on_batch:
        found = log_probabilities(model, sequences, mask_id, place(model), on_batch=on_batch)
    value, tokens = pseudo_perplexity(found)
    return {
        "pseudo_perplexity": value,
        "pseudo_perplexity_tokens": tokens,
        "pseudo_perplexity_sequences": len(sequences),
    }


def load_model(path: Path) -> tuple[Model, str, str, Attention, float]:
    """The model, its name, the sha256 of its tokenizer ("" if it has none), its attention, and its
    validation.mask_rate.

    Only a run can attend per document; transformers' models attend to whole rows.
    """
    if (path / CONFIG).exists():
        has_tokenizer = (path / "tokenizer.json").exists()
        sha256 = read_vocabulary(path).sha256 if has_tokenizer else ""
        return load_folder(path), str(path), sha256, "row", 0.0
    saved, messages = load_run(path)
    for message in messages:
        print(f"checkpoints: {message}", file=sys.stderr)  # --json prints one object
    name = f"{saved.directory} step {saved.step:,}"
    settings = saved.run.batch.attention, saved.run.validation.mask_rate
    return saved.model, name, saved.tokenizer_sha256, *settings


def check_lengths(model: Model, datasets: list[Dataset]) -> None:
    """Raise DataError if sequences are too long, or ids too large, for the model."""
    for dataset in datasets:
        length, ids = dataset.manifest.sequence_length, dataset.manifest.tokenizer["size"]
        if length > model.config.positions or ids > model.config.vocab_size:
            raise DataError(
                f"{dataset.directory} has sequences of {length} and {ids:,} ids, but the model has "
                f"{model.config.positions} positions and {model.config.vocab_size:,} ids; "
                "prepare shards for this model"
            )


def score(
    model: Model,
    datasets: list[Dataset],
    sequences: int,
    attention: Attention,
    per_sequence: Path | None = None,
) -> dict[str, Any]:
    """Scores on the validation rows; sequences: how many to use for pseudo-perplexity, or 0;
    per_sequence: file for the losses of each row."""
    device = place(model)
    loaders = validation_loaders(datasets, ROWS, attention=attention)
    losses: dict[str, SequenceLosses] | None = {} if per_sequence else None
    scores = evaluate_corpora(model, model.parts, loaders, device, losses)
    assert scores is not None
    predictions = sum(part.counts.predictions for part in scores.values())
    if not predictions:
        raise DataError("the held-out sequences have no predicted tokens; prepare more documents")
    result: dict[str, Any] = corpus_fields(scores, "") | {"predictions": predictions}
    result |= loss_entry(model.parts)
    if per_sequence and losses:
        listed = in_file_order(losses, datasets) | null_entry(device_name(device))
        write_whole(per_sequence, json.dumps(listed).encode())
    if sequences:
        tokenizer = datasets[0].manifest.tokenizer
        special = {int(tokenizer[name]) for name in ("bos", "pad", "eos", "unk", "mask")}
        rows = unmasked(validation_loader(datasets, ROWS), sequences)
        maskable = [maskable_sequence(row.numpy(), special) for row in rows]
        result |= _pseudo_perplexity(model, maskable, tokenizer["mask"])
    return result


def report(name: str, result: dict[str, Any]) -> None:
    """Print the scores."""
    if "predictions" in result:
        report_held_out(name, result)
    else:
        print(name)
    if "pseudo_perplexity" in result:
        print(
            f"  pseudo-perplexity   {result['pseudo_perplexity']:,.2f} "
            f"({result['pseudo_perplexity_sequences']:,} sequences, "
            f"{result['pseudo_perplexity_tokens']:,} tokens masked one at a time)"
        )


def report_held_out(name: str, result: dict[str, Any]) -> None:
    """Print the scores on held-out sequences."""
    generated = "rtd_loss" in result or "words_loss" in result
    who = ", by the generator" if generated else ""
    rate = at_rate(result.get(RATE))
    print(f"{name}: {result['predictions']:,} predicted tokens of held-out sequences{rate}{who}")
    print(f"  loss                {result['mlm_loss']:.4f} nats")
    print(f"  loss at [MASK]      {result['mask_loss']:.4f} nats")
    print(f"  accuracy            {result['accuracy']:.2%}")
    print(f"  perplexity          {result['perplexity']:,.2f}")
    for corpus in sorted(key[len(LOSS_OF) :] for key in result if key.startswith(LOSS_OF)):
        loss, accuracy = result[f"{LOSS_OF}{corpus}"], result[f"accuracy/{corpus}"]
        print(f"  {corpus:<19} {loss:.4f} nats, {accuracy:.2%} accuracy")
    others = [part for part in PARTS if f"{part}_loss" in result]
    for part in others:
        loss, accuracy = result[f"{part}_loss"], result[f"{part}_accuracy"]
        per = result[ENTRY][part]["per"]
        where = " at predicted tokens" if per == "predictions" else ""
        print(f"  {PARTS[part]:<19} {loss:.4f} nats, {accuracy:.2%} accuracy{where}")
    if "rtd_auc" in result:
        suspected = not math.isnan(result["rtd_precision"])
        precision = f"{result['rtd_precision']:.2%} precision" if suspected else "none suspected"
        print(
            f"  replaced tokens     {precision}, {result['rtd_recall']:.2%} recall, "
            f"{result['rtd_auc']:.4f} area under the curve"
        )
    if "words_recall" in result:
        print(f"  replaced tokens     {result['words_recall']:.2%} restored")
    if others and "loss" in result:
        weighted = [f"{result[ENTRY][part]['weight']:g} x {PARTS[part]}" for part in others]
        print(f"  all parts           {result['loss']:.4f} nats = loss + {' + '.join(weighted)}")


if __name__ == "__main__":
    run_command(main)

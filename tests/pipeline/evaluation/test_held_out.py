import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model.objectives.masked_language import MaskedLanguageModel
from model.pieces import pieces_of
from pipeline.base.errors import DataError
from pipeline.config.formats import Attention
from pipeline.config.settings import override
from pipeline.data.shards.arrow_files import read_table
from pipeline.evaluation import held_out
from pipeline.evaluation.corpus_scores import Scores, corpus_fields
from pipeline.evaluation.held_out import evaluate_corpora, score_held_out, validation_loader
from pipeline.evaluation.model_inputs import model_inputs
from pipeline.evaluation.reports import PARTS, print_scores
from pipeline.loading.dataset import Dataset
from pipeline.loading.loader import Loader
from pipeline.planning.build import build_model
from pipeline.planning.phase_plan import encoder_config
from pipeline.recipes import recipe
from pipeline.training.weights.model_folders import load_folder, write_folder

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model() -> MaskedLanguageModel:
    run = recipe("roberta_tiny")
    small = replace(run.encoder, layers=1, width=16, feed_forward=32, initializer_range=0.3)
    return MaskedLanguageModel(encoder_config(replace(run, encoder=small)), seed=3).eval()


@pytest.fixture(scope="module")
def dataset(prepared: Path) -> Dataset:
    return Dataset.open(prepared, "validation")


@pytest.fixture(scope="module")
def small(dataset: Dataset) -> list[Dataset]:
    """Two corpora with few rows, not in the order in which corpora are read."""
    corpora = dataset.by_corpus()
    return [corpora["web"], corpora["news"]]


def scored(model: MaskedLanguageModel, loader: Loader, **options: Any) -> Scores | None:
    return held_out.evaluate(model, model.parts, loader, CPU, **options)


def test_a_second_objective_without_labels_leaves_masked_language_modelling(
    model: MaskedLanguageModel, dataset: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    """So a model with a pair head and one without compare on shards without pairs."""
    both = MaskedLanguageModel(model.config, seed=3, pair_weight=1.0).eval()
    both.load_state_dict(model.state_dict(), strict=False)
    news = dataset.by_corpus()["news"]
    loaders = held_out.validation_loaders([news], 64)
    alone, beside = (evaluate_corpora(one, one.parts, loaders, CPU) for one in (model, both))
    assert alone and beside
    found = corpus_fields(beside, "validation_", {})
    without = corpus_fields(alone, "validation_", {})
    assert without.pop("validation_loss") == without["validation_mlm_loss"]
    assert found == without  # no pair, and no sum of all parts
    result = score_held_out(both, [news], CPU, "row")
    assert result["mlm_loss"] > 0 and not {"pair_loss", "loss"} & result.keys()
    print_scores("model", result)
    said = capsys.readouterr().out
    assert f"  loss                {result['mlm_loss']:.4f} nats" in said
    assert "pairs" not in said and "all parts" not in said


@pytest.mark.parametrize("rate", [0, 0.3])
def test_neither_rows_nor_ranks_change_a_score(
    rate: float, model: MaskedLanguageModel, small: list[Dataset]
) -> None:
    """Nor with masks that are drawn for the purpose."""
    stored = sum(shard.masks[0].predictions for part in small for shard in part.shards)
    given = [part.at_rate(rate) for part in small]
    whole = scored(model, validation_loader(given, 100))
    assert whole is not None
    expected = (rate or 0.15) / 0.15 * stored
    assert whole.counts.predictions == pytest.approx(expected, rel=rate / 5)
    parts: list[torch.Tensor] = []

    def gather(sums: torch.Tensor) -> torch.Tensor:
        parts.append(sums)
        return torch.stack(parts).sum(0)

    for rank in range(3):
        found = scored(model, validation_loader(given, 32, 3, rank), total=gather)
    assert found is not None
    assert found.counts.predictions == whole.counts.predictions
    assert found.metrics == pytest.approx(whole.metrics, rel=1e-6)
    assert found.metrics["accuracy"] == whole.metrics["accuracy"]


def test_the_first_rows_of_each_shard_are_scored(dataset: Dataset) -> None:
    shards = np.array([shard.sequences for shard in dataset.shards])
    assert len(shards) == 5 and shards.min() > 3
    starts = np.cumsum(shards) - shards
    wanted = [start + row for start in starts.tolist() for row in range(3)]
    for world_size in (1, 2):
        found: list[int] = []
        for rank in range(world_size):
            loader = validation_loader([dataset], 4, world_size, rank, most=3)
            for batch in loader.micro_batches():
                found += batch.samples.row.tolist()
        assert sorted(found) == wanted
    whole = validation_loader([dataset], 64, most=int(shards.max())).order
    assert whole.end == whole.total_rows


def test_isolated_documents_are_scored_as_if_each_were_alone(
    model: MaskedLanguageModel, dataset: Dataset
) -> None:
    news = dataset.by_corpus()["news"]
    isolated = scored(model, validation_loader([news], 64, attention="document"))
    seen = scored(model, validation_loader([news], 64, attention="row"))
    tables = [read_table(news.directory / shard.file) for shard in news.shards]
    starts = [row for table in tables for row in table["document_starts"].to_pylist()]
    loss = 0.0
    for batch in validation_loader([news], 1).micro_batches():
        ends = [*starts[int(batch.samples.row[0])], batch.tokens]
        slots = batch.positions[: batch.predictions], batch.labels[: batch.predictions]
        for begin, end in pairwise(ends):
            own = (slots[0] >= begin) & (slots[0] < end)
            with torch.no_grad():
                logits = model.logits(batch.input_ids[begin:end], pieces_of([end - begin]))
            losses = -logits.log_softmax(-1)[slots[0][own] - begin, slots[1][own]]
            loss += float(losses.double().sum())
    assert isolated and max(map(len, starts)) == 2
    mean = loss / isolated.counts.predictions
    assert isolated.metrics["mlm_loss"] == pytest.approx(mean, rel=1e-6)
    assert seen and seen.counts == isolated.counts
    assert abs(seen.metrics["mlm_loss"] - mean) > 1e-4


@pytest.mark.parametrize(
    ("name", "settings", "attention"),
    [
        ("roberta_tiny", [], "document"), ("bert_tiny", [], "row"), ("electra_tiny", [], "row"),
        ("electra_tiny", ["objective.kind=all_tokens_mlm"], "document"),
        pytest.param("albert_tiny", ["encoder.embedding_width=16"], "row", marks=pytest.mark.slow),
        pytest.param("spanbert_tiny", [], "document", marks=pytest.mark.slow),
        pytest.param("modernbert_tiny", [], "document", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_losses_of_sequences_are_those_of_each_alone(
    name: str, settings: list[str], attention: Attention, small: list[Dataset]
) -> None:
    """Of any objective, in the order of the shards, and adding up to the score of all."""
    vocabulary = small[0].manifest.tokenizer["size"]
    sizes = ["encoder.layers=2", "encoder.width=32", "encoder.heads=2", "encoder.feed_forward=64",
             "encoder.initializer_range=0.3", f"data.vocab_size={vocabulary}"]  # fmt: skip
    model = build_model(override(recipe(name), [*sizes, *settings]), seed=0).eval()
    some = [*small, small[0]]
    found: dict[str, held_out.SequenceLosses] = {}
    loaders = held_out.validation_loaders(some, 24, attention=attention)
    scores = evaluate_corpora(model, model.parts, loaders, CPU, found)
    losses = held_out.in_file_order(found, some)
    begin = 0
    for part in some:
        loader = validation_loader([part], 1, attention=attention)
        for row, batch in enumerate(loader.micro_batches(), begin):
            with torch.no_grad():
                alone = model(model_inputs(batch, part.manifest.tokenizer))
            assert losses["mask_count"][row] == float(alone["mask_count"])
            assert losses["mask_loss"][row] == pytest.approx(float(alone["mask_loss"]), rel=1e-5)
            if row == begin + 30:  # more than a micro-batch
                break
        loader.close()
        begin += int(part.piece_rows.sum())
    assert scores
    total = Scores.total(scores.values())
    assert sum(losses["mask_loss"]) == pytest.approx(float(total.sums["mask_loss"]), rel=1e-6)
    assert "word_losses" not in total.sums


def test_corpora_are_scored_separately_and_together_and_alike_every_time(
    model: MaskedLanguageModel, dataset: Dataset, small: list[Dataset]
) -> None:
    """Also, a pass can be stopped."""
    loader = validation_loader(small, 64)
    whole = scored(model, loader)
    assert whole == scored(model, loader)
    answers = iter([False, False, True])
    assert scored(model, loader, stopped=lambda: next(answers)) is None
    five = ["articles", "books", "news", "web", "stories"]
    assert list(held_out.validation_loaders([dataset, dataset], 64)) == five
    loaders = held_out.validation_loaders(small * 2, 64)
    parts = evaluate_corpora(model, model.parts, loaders, CPU)
    assert whole and parts
    together = corpus_fields(parts, "", {})
    assert Scores.total(parts.values()).counts.predictions == 2 * whole.counts.predictions
    assert together["loss"] == pytest.approx(whole.metrics["loss"], rel=1e-5)
    assert together["loss/web"] == parts["web"].metrics["loss"] != together["loss/news"]
    assert corpus_fields({"one": whole}, "", {}) == whole.fields("")
    assert evaluate_corpora(model, model.parts, loaders, CPU, stopped=lambda: True) is None


def test_eval_mode_ends_with_the_block_and_rows_must_fit_the_model(
    model: MaskedLanguageModel, dataset: Dataset
) -> None:
    few = MaskedLanguageModel(replace(model.config, vocab_size=9), seed=0)
    with held_out.evaluating(few):
        assert not few.training
    assert few.training
    with pytest.raises(DataError, match=r"ids, but the model has \d+ positions and 9 ids"):
        score_held_out(few, [dataset], CPU, "row")


def test_unmasked_gives_back_what_was_prepared(dataset: Dataset) -> None:
    found = held_out.read_unmasked(validation_loader([dataset], 8), 20)
    specials = dataset.manifest.tokenizer
    assert len(found) == 20
    for ids, segments in found:
        assert not segments.any()
        assert ids[0] == specials["bos"] and ids[-1] == specials["eos"]
        assert not (ids == specials["mask"]).any() and not (ids == specials["pad"]).any()


@pytest.mark.parametrize(
    "name, settings",
    [("bert_tiny", ["objective.pair_weight=0.5"]), ("electra_tiny", ["objective.kind=rtd_masked"]),
     ("electra_tiny", ["objective.kind=replace_mlm", "objective.words_weight=3"]),
     ("electra_tiny", ["objective.kind=all_tokens_mlm", "objective.words_weight=0.1"])],
)  # fmt: skip
def test_a_folder_scores_as_its_run_with_every_part_of_the_loss(
    name: str, settings: list[str], lesson: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = Dataset.open(lesson, "validation")
    sizes = ["encoder.layers=2", f"data.vocab_size={given.manifest.tokenizer['size']}"]
    model = build_model(override(recipe(name), [*sizes, *settings]), seed=0).eval()
    write_folder(model, lesson / "tokenizer", tmp_path / "model")
    folder = load_folder(tmp_path / "model")
    ours, found = (score_held_out(each, [given], CPU, "row") for each in (model, folder))
    assert json.dumps(found) == json.dumps(ours)  # NaN, where all judged tokens are replaced, too
    part = model.parts[1]
    assert part == folder.parts[1]
    if part.name == "pair":
        return  # the lesson has no pairs
    weighted = part.weight * ours[f"{part.name}_loss"]
    assert ours["loss"] == pytest.approx(ours["mlm_loss"] + weighted)
    print_scores("model", ours)
    said = capsys.readouterr().out
    assert f" nats = loss + {part.weight:g} x {PARTS[part.name]}\n" in said
    assert ("accuracy at predicted tokens\n" in said) == (part.per == "predictions")

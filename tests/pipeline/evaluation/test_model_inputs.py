"""Micro-batches as the model takes them: nothing is dead on a CPU; dead tokens weigh nothing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from model.objectives.masked_language import MaskedLanguageModel
from pipeline.evaluation.model_inputs import model_inputs
from pipeline.loading.dataset import Dataset
from pipeline.loading.loader import Loader
from pipeline.loading.micro_batch import BatchForm, Extras
from pipeline.loading.order import Order, Share
from pipeline.loading.placement import Capacity
from pipeline.planning.build import build_model
from pipeline.planning.phase_plan import encoder_config
from pipeline.recipes import recipe
from tests.pipeline.loading.conftest import BOS, EOS, MASK, prepare_directory

TOKENIZER = {"bos": BOS, "eos": EOS, "mask": MASK}


def loader(directory: Path, sequences: int, rows: int, **options: Any) -> Loader:
    dataset = Dataset.open(directory)
    order = Order(kind="global", seed=1, piece_rows=(dataset.piece_rows,))
    return Loader([dataset], order, Share(sequences=sequences, per_device=rows), **options)


def test_a_cpu_gets_what_there_is_and_nothing_dead(lesson: Path) -> None:
    batch = next(loader(lesson, 4, 4).micro_batches())
    inputs = model_inputs(batch, TOKENIZER)
    assert inputs.segment_ids_T is None and inputs.pair_labels_R is None
    assert (
        inputs.token_weights_T is None and inputs.mask_id == MASK and inputs.edge_ids == (BOS, EOS)
    )
    assert inputs.input_ids_T.shape == (batch.tokens,) and inputs.pieces.longest == 32
    assert inputs.row_starts_R is not None
    assert inputs.row_starts_R.tolist() == inputs.pieces.cu_seqlens[:-1].tolist()
    slots = [len(part) for part in (inputs.positions_K, inputs.labels_K, inputs.weights_K)]
    assert slots == [batch.predictions] * 3
    assert inputs.weights_K.min() == 1


def test_segments_of_pairs_reach_the_model(tmp_path: Path) -> None:
    """The loss depends on them with two types and not with one."""
    pairs = prepare_directory(tmp_path / "pairs", (40,), label="order")
    batch = next(loader(pairs, 8, 8).micro_batches())
    inputs = model_inputs(batch, TOKENIZER)
    assert batch.pair_labels is not None
    assert batch.counts.pairs == int((batch.pair_labels >= 0).sum()) > 0
    assert inputs.segment_ids_T is not None and inputs.segment_ids_T.any()
    for types in (1, 2):
        run = recipe("roberta_tiny")
        encoder = replace(run.encoder, positions=70, segment_types=types)
        config = encoder_config(replace(run, encoder=encoder))
        model = MaskedLanguageModel(config, seed=0).eval()
        loss = model(inputs)["mlm_loss"]
        felt = loss != model(inputs._replace(segment_ids_T=None))["mlm_loss"]
        assert bool(felt) == (types == 2)


@pytest.mark.parametrize("name", ["bert_tiny", "electra_tiny", "spanbert_tiny", "modernbert_tiny"])
def test_dead_tokens_change_neither_sums_nor_gradients(name: str, tmp_path: Path) -> None:
    """A micro-batch of fixed size equals one without dead tokens; without rows, sums and gradients
    are exactly 0."""
    label = "next" if name == "bert_tiny" else ""
    directory = prepare_directory(tmp_path / "rows", (40,), label=label)
    run = recipe(name)
    model = build_model(replace(run, encoder=replace(run.encoder, positions=70)), seed=0)
    extras = Extras(draws_seed=3, most_targets=10)
    capacity = Capacity(tokens=700, predictions=90, rows=12, pieces=12)
    found = []
    for given in (None, capacity):
        source = loader(directory, 8, 8, form=BatchForm(extras=extras, capacity=given))
        step = source.pad_micro_batches(next(source.steps()), 2)
        for batch in step.batches:
            inputs = model_inputs(batch, TOKENIZER)
            if given:
                assert len(inputs.input_ids_T) == 700 and inputs.token_weights_T is not None
                assert int(inputs.token_weights_T.sum()) == batch.tokens
            sums = model(inputs)
            model.zero_grad()
            sum(value for key, value in sums.items() if key.endswith("_loss")
                and value.requires_grad).backward()  # fmt: skip
            gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
            found.append(({key: value.detach() for key, value in sums.items()}, gradients))
    live, empty, fixed, dead = found
    assert live[0].keys() == fixed[0].keys() and float(live[0]["mlm_loss"]) > 0
    for key, value in live[0].items():
        torch.testing.assert_close(fixed[0][key], value, rtol=1e-5, atol=1e-5)
    for one, other in zip(live[1], fixed[1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    for sums, gradients in (empty, dead):
        assert not any(value.any() for value in sums.values())
        assert not any(gradient.any() for gradient in gradients)

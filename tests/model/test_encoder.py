"""The encoder: full rows need no mask, and initial weights follow their table and seed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from model.encoder import MOST_GRAPHS, Encoder, initialize
from model.objectives.masked_language import MaskedLanguageModel
from tests.model.conftest import TOY


def test_full_rows_equal_no_lengths() -> None:
    encoder = Encoder(TOY)
    initialize(encoder, TOY, seed=0)
    ids = torch.randint(5, 300, (2, 12))
    full = encoder(ids, torch.tensor([12, 12]))
    assert torch.equal(full, encoder(ids, None))
    assert not torch.equal(full[1], encoder(ids, torch.tensor([12, 7]))[1])


def test_traps_32_a_short_row_equals_the_row_alone() -> None:
    encoder = Encoder(TOY)
    initialize(encoder, TOY, seed=0)
    ids = torch.randint(5, 300, (2, 12))
    both = encoder(ids, torch.tensor([12, 7]))
    torch.testing.assert_close(both[1:, :7], encoder(ids[1:, :7], None), rtol=0, atol=1e-5)


def test_segments_reach_the_embeddings() -> None:
    encoder = Encoder(replace(TOY, segment_types=2))
    initialize(encoder, encoder.config, seed=0)
    ids = torch.randint(5, 300, (1, 12))
    assert torch.equal(encoder(ids, None, torch.zeros_like(ids)), encoder(ids, None))
    assert not torch.equal(encoder(ids, None, torch.ones_like(ids)), encoder(ids, None))


def test_initial_weights_follow_the_table() -> None:
    config = replace(TOY, width=128, embedding_width=128, feed_forward=512)
    model = MaskedLanguageModel(config, seed=3)
    norms = 0
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            drawn = parameter[: 300 if "words" in name else None]
            if drawn.numel() > 10_000:
                assert drawn.std().item() == pytest.approx(0.12, rel=0.03), name
                assert drawn.mean().item() == pytest.approx(0.0, abs=0.01), name
        elif "norm" in name and name.endswith("weight"):
            assert torch.equal(parameter, torch.ones(128)), name
            norms += 1
        else:
            assert not parameter.any(), name
    assert norms == 2 * TOY.layers + 2
    words = model.encoder.embeddings.words.weight
    assert words.shape == (384, 128) and not words[300:].any() and words[:300].any(dim=1).all()


def test_a_seed_fixes_the_weights() -> None:
    torch.manual_seed(1)
    first = MaskedLanguageModel(TOY, seed=3)
    torch.manual_seed(2)
    again, other = MaskedLanguageModel(TOY, seed=3), MaskedLanguageModel(TOY, seed=4)
    for ours, same, different in zip(first.parameters(), again.parameters(), other.parameters()):
        assert torch.equal(ours, same)
        assert ours.dim() == 1 or not torch.equal(ours, different)


def test_layers_compile_to_one_graph_each_way_they_are_used() -> None:
    """In bf16, where a CPU takes the path of a GPU; two encoders, as ELECTRA has."""
    torch._dynamo.reset()
    counter, ids = CompileCounter(), torch.randint(5, 300, (2, 12))
    encoders = []
    for width in (48, 24):
        config = replace(TOY, width=width, embedding_width=width, dropout=0.1)
        encoder = Encoder(config)
        initialize(encoder, config, seed=0)
        encoder.bfloat16().compile_layers(counter)
        encoders.append(encoder)
    pieces = torch.tensor([0, 12, 17, 24], dtype=torch.int32)
    for expected in (12, 12):
        for encoder in encoders:
            for lengths, cu_seqlens in (
                (None, None), (torch.tensor([12, 7]), None), (None, pieces)
            ):  # fmt: skip
                encoder.train()(ids, lengths, None, cu_seqlens).float().sum().backward()
                with torch.no_grad():
                    encoder.eval()(ids, lengths, None, cu_seqlens)
        assert counter.frame_count == expected < MOST_GRAPHS
    torch._dynamo.reset()

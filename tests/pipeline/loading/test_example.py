from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models

from pipeline.loading.example import describe_example


def test_predicted_tokens_show_what_is_seen_and_the_answer() -> None:
    words = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "Ġthe", "Ġcat", "Ġsat", "Ġdown"]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, []))
    tokenizer.decoder = decoders.ByteLevel()
    batch: Any = SimpleNamespace(
        input_ids=torch.tensor([[0, 5, 4, 7, 8, 2, 1], [0, 5, 6, 2, 1, 1, 1]]),
        lengths=torch.tensor([6, 4]),
        positions=torch.tensor([2, 4, 8, 0]),
        labels=torch.tensor([6, 7, 5, 0]),
        row_weights=torch.ones(2),
        row_starts=torch.tensor([0, 7]),
        predictions=3,
    )
    assert describe_example(batch, tokenizer) == ("<s> the {<mask> | cat} sat { down | sat}</s>")
    assert describe_example(batch, tokenizer, tokens=3) == "<s> the {<mask> | cat}"
    batch.row_weights = torch.tensor([0.0, 1.0])  # the first row stands for a skipped one
    assert describe_example(batch, tokenizer) == "<s> { the | the} cat</s>"

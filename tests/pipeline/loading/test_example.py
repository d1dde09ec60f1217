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
        input_ids=torch.tensor([0, 5, 4, 7, 8, 2, 0, 5, 6, 2]),
        rows=[slice(0, 6), slice(6, 10)],
        positions=torch.tensor([2, 4, 7, 0]),
        labels=torch.tensor([6, 7, 5, 0]),
        predictions=3,
    )
    assert describe_example(batch, tokenizer) == ("<s> the {<mask> | cat} sat { down | sat}</s>")
    assert describe_example(batch, tokenizer, tokens=3) == "<s> the {<mask> | cat}"

"""What tells the input formats apart: who has two segments, which settings each one reads."""

from __future__ import annotations

from typing import Literal

Attention = Literal["row", "document"]
"""What a token sees, see `run.Batch`."""

PAIR_FORMATS = ("segment_pair", "sentence_pair")
"""Formats of two segments."""

SEGMENT_FIELDS = {
    "segment_pair": ("label", "short_share", "single_share", "draws"),
    "sentence_pair": ("label", "draws"),
    "single_segment": ("short_share", "draws"),
}
"""Fields of `run.Segments` that a format reads; the others read none."""

SEPARATORS = {"byte-bpe": 2, "wordpiece": 1, "unigram": 1}
"""How many separators part two segments, by kind of vocabulary: RoBERTa's `<s> A </s></s> B </s>`,
and `[CLS] A [SEP] B [SEP]` of BERT and ALBERT."""

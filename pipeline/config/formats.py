"""Properties of the input formats: which have two segments, and which settings each one reads."""

from __future__ import annotations

from typing import Literal

Attention = Literal["row", "document"]
"""What a token attends to, see `BatchSettings`."""

PAIR_FORMATS = ("segment_pair", "sentence_pair")
"""Formats with two segments."""

SEGMENT_FIELDS = {
    "segment_pair": ("label", "short_share", "single_share", "draws"),
    "sentence_pair": ("label", "draws"),
    "single_segment": ("short_share", "draws"),  # one segment is not a pair to label
}
"""Fields of `SegmentSettings` that each format reads; the other formats read none."""

SEPARATORS = {"byte-bpe": 2, "wordpiece": 1, "unigram": 1}
"""Separators between two segments, by tokenizer: `<s> A </s></s> B </s>` in RoBERTa,
`[CLS] A [SEP] B [SEP]` in BERT and ALBERT."""

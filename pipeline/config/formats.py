"""Names of forms that several rooms share, and the properties of the input formats: which have two
segments, and which settings each one reads."""

from __future__ import annotations

from typing import Literal

Attention = Literal["row", "document"]
"""What a token attends to, see `BatchSettings`."""
Pll = Literal["token", "word"]
"""How a sentence is scored, see `pipeline.evaluation.zero_shot.pseudo_likelihood`."""
PLL_NAMES: dict[str, str] = {"token": "PLL per token", "word": "PLL-word-l2r"}
"""The measures as tables and model cards name them."""

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

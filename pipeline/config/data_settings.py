"""Data settings: the `data` section of a Run, its rules, and the values derived from it.

`prepare` reads only these. `shard_settings` are the ones that decide the bytes of shards; the
manifest stores them and the fingerprint covers them. Rules across sections are in `rules.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pipeline.base.errors import DataError
from pipeline.config.formats import PAIR_FORMATS, SEGMENT_FIELDS, SEPARATORS
from pipeline.config.schema import (
    CountOrZero,
    Range,
    Seed,
    Share,
    legacy_values,
    setting_types,
)
from pipeline.config.settings import flatten, parts_per_million, to_dict

SequenceLength = Annotated[int, Range("[3, 65535]")]
"""At least two special tokens and one text token; positions are stored in 16 bits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskSettings:
    """How many tokens of a sequence are predicted, what replaces them, and how long spans are."""

    rate: Annotated[float, Range("(0, 1)")]
    """Share of a sequence's text tokens to predict."""
    mask_share: Share
    """Share of the predicted tokens to replace by [MASK]."""
    random_share: Share
    """Share of the predicted tokens to replace by a random token; the rest stay unchanged."""
    max_ngram: Annotated[int, Range("[1, 64]")]
    """Longest n-gram of masking=ngram, in words; length n has probability proportional to 1/n."""
    span_p: Annotated[float, Range("(0, 1]")]
    """Span lengths of masking=span: k words, in proportion to span_p x (1 - span_p)**(k - 1)."""
    max_span: Annotated[int, Range("[1, 64]")]
    """Longest span of masking=span, in words; adjacent spans can form a longer one."""
    random_ids: Literal["uniform", "unigram"]
    """Distribution of the random tokens: all alike, or by how often they occur in the shards."""

    def contradictions(self) -> Iterator[str]:
        """Shares that add up to more than 1, and a distribution that nothing is drawn from."""
        if self.random_ids == "unigram" and self.random_share == 0:
            yield (
                "data.masks.random_ids=unigram has no effect with data.masks.random_share=0; add "
                "--set data.masks.random_ids=uniform, or --set data.masks.random_share=0.1"
            )
        if parts_per_million(self.mask_share) + parts_per_million(self.random_share) > 10**6:
            rest_of = (
                (10**6 - parts_per_million(share)) / 10**6
                for share in (self.mask_share, self.random_share)
            )
            yield (
                f"data.masks.mask_share={self.mask_share} and data.masks.random_share="
                f"{self.random_share} add up to more than 1; add --set data.masks.random_share="
                f"{next(rest_of)}, or --set data.masks.mask_share={next(rest_of)}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class SegmentSettings:
    """How the segment formats fill a row; full_sentences and doc_sentences do not read it."""

    label: Literal["none", "next", "order"]
    """Label of a segment pair: none, next sentence (NSP) or sentence order (SOP)."""
    short_share: Share
    """Share of the rows that are filled only up to a random shorter length."""
    single_share: Annotated[float, Range("[0, 1)")]
    """Share of segment_pair rows that hold a single segment, without a label."""
    draws: Annotated[int, Range("[1, 1024]")]
    """Passes over the training documents; each draws its rows independently of the others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSettings:
    """Sequences, masks and vocabulary: all but `order`, `reader` and `damaged` fix the shards."""

    format: Literal[
        "full_sentences", "doc_sentences", "segment_pair", "sentence_pair", "single_segment"
    ]
    """How documents become sequences; named as in Liu et al. 2019, sec. 4.2."""
    segments: SegmentSettings
    """How the segment formats fill a row."""
    sequence_length: SequenceLength
    """Tokens per sequence, special tokens included."""
    masking: Literal["token", "whole_word", "ngram", "span", "electra"]
    """How the predicted tokens of a sequence are chosen."""
    mask_mode: Literal["static", "duplicates", "per-epoch"]
    """Masks of epoch e: always the same, number (e-1) mod `duplicates`, or new in each epoch."""
    duplicates: CountOrZero
    """Masks stored per sequence; 0 with mask_mode=per-epoch, where the loader draws them."""
    masks: MaskSettings
    """How many tokens are predicted, and what replaces them."""
    tokenizer: Literal["byte-bpe", "wordpiece", "unigram"]
    """Tokenizer algorithm."""
    lower_case: bool
    """Lower-case the text and strip accents, as BERT does (wordpiece) or ALBERT (unigram)."""
    vocab_size: Annotated[int, Range("[261, 2**32)")]  # 256 bytes, five special tokens; 32-bit ids
    """Vocabulary size, special tokens included, before any padding in the model."""
    seed: Seed
    """Seed of the validation split, the rows and the masks; independent of the run's `seed`."""
    validation_fraction: Annotated[float, Range("(0, 1]")]
    """Share of the documents to hold out for validation; 1: all, for a corpus to evaluate on."""
    order: Literal["global", "blocks"]
    """Shuffle: all rows at once, or blocks of 1,024 rows, mixed in `batch.order_window`."""
    reader: Literal["mmap", "read"]
    """Memory-map shards, or read whole blocks; never changes what is learned."""
    damaged: Literal["stop", "skip"]
    """At a damaged or missing training shard: stop, or skip its rows."""

    def contradictions(self) -> Iterator[str]:
        """Masks, tokenizer, format and reader that do not fit together."""
        if self.masking == "electra" and self.masks.random_share > 0:
            yield (
                "data.masking=electra has no random tokens, but data.masks.random_share="
                f"{self.masks.random_share}; add --set data.masks.random_share=0 (the paper also "
                "has a mask_share of 0.85), or --set data.masking=token"
            )
        if self.tokenizer == "byte-bpe" and self.lower_case:
            yield (
                "data.lower_case=true conflicts with data.tokenizer=byte-bpe, which keeps every "
                "byte; add --set data.lower_case=false, or --set data.tokenizer=wordpiece or --set "
                "data.tokenizer=unigram"
            )
        legal = {"static": self.duplicates == 1, "per-epoch": self.duplicates == 0}
        if not legal.get(self.mask_mode, self.duplicates > 0):
            stored = {"static": 1, "duplicates": 10, "per-epoch": 0}[self.mask_mode]
            mode = {0: "per-epoch", 1: "static"}.get(self.duplicates, "duplicates")
            yield (
                f"data.mask_mode={self.mask_mode} conflicts with data.duplicates="
                f"{self.duplicates}: static stores 1 mask, duplicates 1 or more, per-epoch none; "
                f"add --set data.duplicates={stored}, or --set data.mask_mode={mode}"
            )
        if self.reader == "read" and self.order != "blocks":
            yield (
                f"data.reader=read reads whole blocks, but data.order={self.order} needs single "
                "rows; add --set data.order=blocks, or --set data.reader=mmap"
            )
        yield from self._repeated_draws()
        yield from self.too_short(self.sequence_length, "data.sequence_length")

    def _repeated_draws(self) -> Iterator[str]:
        """More draws than one where each would give the same rows."""
        segments = self.segments
        draws_differ = {
            "segment_pair": True,
            "sentence_pair": segments.label == "next",
            "single_segment": segments.short_share > 0,
        }
        if segments.draws > 1 and not draws_differ.get(self.format, False):
            random = {
                "sentence_pair": "data.segments.label=next",
                "single_segment": "data.segments.short_share=0.1",
            }
            yield (
                f"data.segments.draws={segments.draws} would store the same rows of data.format="
                f"{self.format} several times; add --set data.segments.draws=1, or --set "
                f"{random.get(self.format, 'data.format=segment_pair')} for rows that differ"
            )

    def too_short(self, length: int, path: str) -> Iterator[str]:
        """A message if `length` tokens cannot hold a pair; path: the setting of the length."""
        least = 4 + SEPARATORS[self.tokenizer]
        if self.format in PAIR_FORMATS and length < least:
            yield (
                f"{path}={length} is too short for two segments of data.format={self.format}; "
                f"add --set {path}={least} or more"
            )


READ_TIME_FIELDS = ("order", "reader", "damaged")
"""Fields of DataSettings that affect only the reading of shards; the others decide their bytes."""

LENGTH_FIELDS = {"max_ngram": "ngram", "span_p": "span", "max_span": "span"}
"""Fields of MaskSettings that only one masking scheme reads, and that scheme."""


def all_shard_settings(data: DataSettings) -> dict[str, Any]:
    """The settings that decide the bytes of shards, by path inside `data`."""
    flat = flatten(to_dict(data))
    found = {}
    for path in sorted(flat, key=lambda path: path.rpartition(".")[0]):  # as manifests list them
        section, _, name = path.rpartition(".")
        if section == "masks":
            decides = LENGTH_FIELDS.get(name, data.masking) == data.masking
        elif section == "segments":
            decides = name in SEGMENT_FIELDS.get(data.format, ())
        else:
            decides = path not in READ_TIME_FIELDS
        if decides:
            found[path] = flat[path]
    return found


def shard_settings(data: DataSettings) -> dict[str, Any]:
    """The data settings in the manifest and the fingerprint of shards.

    These are `all_shard_settings` minus those at their legacy value, so shards older than such a
    setting keep their fingerprint.
    """
    legacy = legacy_values(type(data))
    return {
        path: value
        for path, value in all_shard_settings(data).items()
        if path not in legacy or value != legacy[path]
    }


def prepared_settings(stored: Mapping[str, Any], owner: object) -> dict[str, Any]:
    """The settings that shards were prepared with, from `data` of their manifest.

    An absent setting has its legacy value. Raises DataError, naming `owner`, if this version does
    not know a setting.
    """
    known = setting_types(DataSettings)
    for path, value in stored.items():
        if path not in known:
            raise DataError(
                f"{owner} was prepared with data.{path}={value}, which this version does not know; "
                "use the version that prepared it, or prepare the corpus again with this one"
            )
    return legacy_values(DataSettings) | dict(stored)


def prediction_count(text_tokens: int, mask_rate: float) -> int:
    """Number of predictions for `text_tokens` >= 1, rounded to nearest, halves up, at least one."""
    # Whole numbers: a float's last bit could differ between machines, and so the shards.
    return max(1, (text_tokens * parts_per_million(mask_rate) + 500_000) // 1_000_000)


def max_predictions(data: DataSettings) -> int:
    """Most predictions a sequence can have."""
    return most_predictions(data.sequence_length, data.masking, data.masks.rate)


def most_predictions(sequence_length: int, masking: str, mask_rate: float) -> int:
    """Most predictions of a sequence: all of its tokens but two special ones are text."""
    text = sequence_length - 2
    # SpanBERT's budget is rounded up, the others' to the nearest.
    rounded_up = -(-text * parts_per_million(mask_rate) // 1_000_000)
    return rounded_up if masking == "span" else prediction_count(text, mask_rate)

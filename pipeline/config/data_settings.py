"""The settings that say what shards hold: `data` of a Run, its rules, and what follows from it.

Preparing reads these alone. `shard_settings` are the ones that decide the bytes of shards: they are
in the manifest and in the fingerprint. Rules that involve other sections are in `rules.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pipeline.config.formats import PAIR_FORMATS, SEGMENT_FIELDS, SEPARATORS
from pipeline.config.schema import CountOrZero, Range, Seed, Share, legacy_values, setting_types
from pipeline.config.settings import flatten, parts_per_million, to_dict
from pipeline.errors import DataError

SequenceLength = Annotated[int, Range("[3, 65535]")]
"""Two special tokens and a text token at least; positions are stored in 16 bits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskSettings:
    """How many positions of a sequence are predicted, what they show, how long a choice is."""

    rate: Annotated[float, Range("(0, 1)")]
    """Share of a sequence's text tokens that are predicted."""
    mask_share: Share
    """Share of the predicted positions that show [MASK]."""
    random_share: Share
    """Share of the predicted positions that show a random id; the rest keep their own."""
    max_ngram: Annotated[int, Range("[1, 64]")]
    """Words of the longest n-gram of masking=ngram; n words have a probability like 1/n."""
    span_p: Annotated[float, Range("(0, 1]")]
    """masking=span: a span of k words has a probability like span_p x (1 - span_p)**(k - 1)."""
    max_span: Annotated[int, Range("[1, 64]")]
    """Words of the longest span of masking=span; spans that touch are longer."""

    def contradictions(self) -> Iterator[str]:
        """Shares that leave less than nothing."""
        if parts_per_million(self.mask_share) + parts_per_million(self.random_share) > 10**6:
            yield (
                f"data.masks.mask_share={self.mask_share} and data.masks.random_share="
                f"{self.random_share} add up to more than 1; lower one"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class SegmentSettings:
    """How formats of one or two segments fill a row, see `data.pairs`; other formats ignore it."""

    label: Literal["none", "next", "order"]
    """What two segments teach: nothing, next sentence (NSP), or sentence order (SOP)."""
    short_share: Share
    """Share of the rows that are filled up to a random shorter length only."""
    single_share: Annotated[float, Range("[0, 1)")]
    """Share of segment_pair's rows that show one segment, without a label."""
    draws: Annotated[int, Range("[1, 1024]")]
    """Sets of train rows; each holds all documents, in rows that are drawn independently."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSettings:
    """Sequences and masks; all but `order`, `reader` and `damaged` decide the bytes of shards."""

    format: Literal[
        "full_sentences", "doc_sentences", "segment_pair", "sentence_pair", "single_segment"
    ]
    """How documents become sequences; the names are those of Liu et al. 2019, sec. 4.2."""
    segments: SegmentSettings
    """How formats of one or two segments fill a row; full and doc sentences ignore it."""
    sequence_length: SequenceLength
    """Tokens per sequence, special tokens included."""
    masking: Literal["token", "whole_word", "ngram", "span", "electra"]
    """Scheme that chooses the predicted positions of a sequence."""
    mask_mode: Literal["static", "duplicates", "per-epoch"]
    """Which masks epoch e reads: the only one, duplicate (e-1) mod `duplicates`, or new ones."""
    duplicates: CountOrZero
    """Masks stored with every sequence; 0 with mask_mode=per-epoch, whose loader draws them."""
    masks: MaskSettings
    """How much is predicted, and what is shown there."""
    tokenizer: Literal["byte-bpe", "wordpiece", "unigram"]
    """Kind of vocabulary."""
    lower_case: bool
    """Uncased: no capitals, no accents; for wordpiece as in BERT, for unigram as in ALBERT."""
    vocab_size: Annotated[int, Range("[261, 2**32)")]  # 256 bytes, five special tokens; 32-bit ids
    """Ids of the vocabulary, special tokens included, before any padding inside the model."""
    seed: Seed
    """Chooses the validation documents and the masks; the run's own `seed` does not touch data."""
    validation_fraction: Annotated[float, Range("(0, 0.5]")]
    """Share of the documents held out, drawn before any duplicate is made."""
    order: Literal["global", "blocks"]
    """Order of samples: all rows permuted, or blocks of 1,024 rows permuted and a window mixed."""
    reader: Literal["mmap", "read"]
    """Memory map, or plain reads of whole blocks; never changes what is learned."""
    damaged: Literal["stop", "skip"]
    """At a damaged or missing shard of training rows: stop, or continue without its rows."""

    def contradictions(self) -> Iterator[str]:
        """Masks, vocabulary, format and reader that do not fit each other."""
        if self.masking == "electra" and self.masks.random_share > 0:
            share = f"data.masks.random_share={self.masks.random_share} to 0"
            yield f"data.masking=electra shows no random ids: set {share} (its paper keeps 15 %)"
        if self.tokenizer == "byte-bpe" and self.lower_case:
            yield (
                "data.lower_case=true does not go with data.tokenizer=byte-bpe, which keeps every "
                "byte; set it to false, or data.tokenizer to wordpiece or unigram"
            )
        legal = {"static": self.duplicates == 1, "per-epoch": self.duplicates == 0}
        if not legal.get(self.mask_mode, self.duplicates > 0):
            yield (
                f"data.mask_mode={self.mask_mode} does not go with data.duplicates="
                f"{self.duplicates}: static stores 1 mask, duplicates 1 or more, per-epoch none "
                "(0); change one of them"
            )
        if self.reader == "read" and self.order != "blocks":
            yield (
                f"data.reader=read reads whole blocks, data.order={self.order} needs single rows; "
                "set data.order=blocks or data.reader=mmap"
            )
        yield from self._segment_contradictions()
        yield from self.too_short(self.sequence_length, "data.sequence_length")

    def _segment_contradictions(self) -> Iterator[str]:
        segments = self.segments
        if segments.label != "none" and self.format not in PAIR_FORMATS:
            yield (
                f"data.segments.label={segments.label} needs two segments, data.format="
                f"{self.format} has none to compare; set data.format to one of "
                f"{', '.join(PAIR_FORMATS)}, or data.segments.label=none"
            )
        draws_differ = {
            "segment_pair": True,
            "sentence_pair": segments.label == "next",
            "single_segment": segments.short_share > 0,
        }
        if segments.draws > 1 and not draws_differ.get(self.format, False):
            yield (
                f"data.segments.draws={segments.draws} would store the same rows of data.format="
                f"{self.format} again and again; set it to 1, or choose segment_pair, "
                "sentence_pair with data.segments.label=next, or single_segment with "
                "data.segments.short_share > 0"
            )

    def too_short(self, length: int, path: str) -> Iterator[str]:
        """Why rows of `length` tokens cannot hold a pair; path: the setting that gives it."""
        least = 4 + SEPARATORS[self.tokenizer]
        if self.format in PAIR_FORMATS and length < least:
            yield (
                f"{path}={length} has no room for two segments of data.format={self.format}; set "
                f"{least} or more"
            )


READ_TIME_FIELDS = ("order", "reader", "damaged")
"""Fields of Data that say how finished shards are read; every other one decides their bytes."""

LENGTH_FIELDS = {"max_ngram": "ngram", "span_p": "span", "max_span": "span"}
"""Fields of Masks that one scheme reads, and which."""


def all_shard_settings(data: DataSettings) -> dict[str, Any]:
    """The settings that decide the bytes of shards, by their paths below `data`."""
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
    """What the manifest and the fingerprint of shards hold of `data`.

    These are `all_shard_settings` without those that have their legacy value, so that shards from
    before such a setting keep their fingerprint.
    """
    legacy = legacy_values(type(data))
    return {
        path: value
        for path, value in all_shard_settings(data).items()
        if path not in legacy or value != legacy[path]
    }


def prepared_settings(stored: Mapping[str, Any], owner: object) -> dict[str, Any]:
    """The settings that shards were prepared with, from `data` of their manifest.

    An absent setting has its legacy value. DataError, with the owner's name, for one that this
    version does not know.
    """
    known = setting_types(DataSettings)
    for path, value in stored.items():
        if path not in known:
            raise DataError(
                f"{owner} was prepared with data.{path}={value}, which this version does not know; "
                "use the version that prepared it, or prepare the text again with this one"
            )
    return legacy_values(DataSettings) | dict(stored)


def prediction_count(text_tokens: int, mask_rate: float) -> int:
    """Positions predicted among `text_tokens` >= 1: the nearest count, halves up, at least one."""
    return max(1, (text_tokens * parts_per_million(mask_rate) + 500_000) // 1_000_000)


def max_predictions(data: DataSettings) -> int:
    """Most predicted positions of a sequence: all its tokens but the first and last are text."""
    text = data.sequence_length - 2
    rounded_up = -(-text * parts_per_million(data.masks.rate) // 1_000_000)
    return rounded_up if data.masking == "span" else prediction_count(text, data.masks.rate)

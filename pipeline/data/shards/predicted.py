"""The share of tokens that masks predict, next to the rate that was asked for.

Whole-word and n-gram masks skip words that are longer than their row's budget. Where such words are
most of a text, few of its tokens, or none, are ever predicted.
"""

from __future__ import annotations

import math
from pathlib import Path

from pipeline.base.errors import DataError
from pipeline.data.shards.manifest import TRAIN, Manifest

FEW = 0.9
"""Share of the asked-for predictions below which users are warned."""
_REMEDY = (
    "use longer rows (data.sequence_length), a tokenizer trained on this text, or "
    "data.masking=token"
)


def predicted_share(manifest: Manifest) -> float:
    """Predicted tokens over text tokens, in all stored masks; NaN if there are none.

    Text tokens of the rows with masks are estimated: text has the same share of them as of all
    rows. It is exact where all rows have the same number of masks.
    """
    packed = [corpus["packed"] for corpus in manifest.corpora.values()]
    text = sum(
        counts["text_tokens"] + counts["repeated_tokens"] - counts["dropped_tokens"]
        for counts in packed
    )
    masked = sum(shard.tokens * len(shard.masks) for shard in manifest.shards)
    predictions = sum(mask.predictions for shard in manifest.shards for mask in shard.masks)
    # `masked` counts special tokens, which are never predicted: scaled by the share of text
    among = masked * text / manifest.totals["tokens"]
    return predictions / among if among else float("nan")


def describe_predicted(share: float, manifest: Manifest) -> list[str]:
    """The share of tokens that are predicted, and a warning if it is far below the rate."""
    rate, scheme = manifest.masking["rate"], manifest.masking["scheme"]
    if math.isnan(share):
        return []
    lines = [f"{share:.2%} of text tokens are predicted, {rate:.2%} was asked for"]
    if share < FEW * rate:
        lines.append(
            f"warning: {scheme} masks skip words longer than their row's budget, and with them "
            f"{1 - share / rate:.0%} of the predictions; {_REMEDY}"
        )
    return lines


def check_predicted(directory: Path, manifest: Manifest) -> None:
    """Raise DataError if a mask file of training rows predicts nothing: its rows teach nothing."""
    for shard in manifest.of(TRAIN):
        for mask in shard.masks:
            if shard.sequences and not mask.predictions:
                raise no_predictions(directory / mask.file, manifest)


def no_predictions(path: Path, manifest: Manifest) -> DataError:
    """The error of masks that predict nothing; path: their file, or directory if none is stored."""
    return DataError(
        f"the masks of {path} predict no token: {manifest.masking['scheme']} masks skip words "
        f"longer than their row's budget; prepare it again: {_REMEDY}"
    )

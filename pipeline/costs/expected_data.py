"""A number of tokens -> datasets without files, from which the phases of a run can be planned.

They have the rows that shards of so many tokens would have, as full as those of the sample corpus.
No row can be read.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from pathlib import Path

from pipeline.base.errors import ConfigError
from pipeline.config.data_settings import DataSettings, all_shard_settings, max_predictions
from pipeline.config.run import Run
from pipeline.data.shards.manifest import (
    TRAIN,
    VALIDATION,
    Manifest,
    MaskFile,
    Shard,
    mask_file,
    rows_file,
    shard_name,
)
from pipeline.loading.compatibility import mask_settings, runs_of
from pipeline.loading.dataset import Dataset

TOKENS_PER_ROW = {
    "full_sentences": (0.95, 65_535), "doc_sentences": (0.87, 65_535),
    "single_segment": (0.88, 65_535), "segment_pair": (0.80, 65_535), "sentence_pair": (1.0, 71),
}  # fmt: skip
"""Share of a row that is filled, and most tokens: of the sample corpus at 512."""
ROW_BYTES = 27
"""Bytes per row without its ids; uncompressed, of the sample corpus in rows of 70 to 490 tokens."""
MASK_BYTES = (0.13, 1 / 4, 12.9)
"""Bytes of a mask without its random ids: per token a bit, per predicted token two, and per row
three offsets and the rest of the last bytes. With Arrow's own, measured as above."""
DOCUMENT_TOKENS = 571
"""Tokens of an average document: of the sample's news, its shortest texts, at 4.2 bytes each."""
_SHARD_TOKENS = 1 << 28
NOWHERE = Path("--tokens")


def expected_datasets(run: Run, tokens: int) -> tuple[tuple[Dataset, ...], tuple[Dataset, ...]]:
    """Datasets of both splits that hold `tokens` tokens of text for each phase of a run.

    Phases of the same length and masks share them. Raises ConfigError if a phase tells
    corpora apart.
    """
    train: list[Dataset] = []
    validation: list[Dataset] = []
    seen: list[object] = []
    for *_, part in runs_of(run):
        if part.batch.is_mixed or part.batch.corpora:
            raise ConfigError(
                "batch.mixture, batch.mixture_exponent and batch.corpora tell corpora apart, which "
                "--tokens cannot; give --data with their shards, or add --set batch.mixture=[] "
                "--set batch.mixture_exponent=1 --set batch.corpora=[]"
            )
        # Phases with one key read the same rows and masks.
        key = (part.data.sequence_length, mask_settings(part))
        if key in seen:
            continue
        seen.append(key)
        manifest = _manifest(part, tokens)
        for split, own in ((TRAIN, train), (VALIDATION, validation)):
            own.append(Dataset(NOWHERE, manifest, manifest.of(split), has_files=False))
    return tuple(train), tuple(validation)


def mean_row(run: Run) -> float:
    """Tokens that a row of the run's format holds on average."""
    share, most = TOKENS_PER_ROW[run.data.format]
    # Two special tokens and one of text.
    return max(3.0, min(share * run.data.sequence_length, most))


def _manifest(run: Run, tokens: int) -> Manifest:
    data = run.data
    # Both splits get some, however few there are.
    held_out = min(tokens // 2, max(1, round(tokens * data.validation_fraction)))
    shards = [
        *_shards(run, TRAIN, tokens - held_out),
        *_shards(run, VALIDATION, held_out),
    ]
    pad = run.encoder.position_offset - 1 if run.encoder.position_offset else 0
    return Manifest(
        fingerprint="expected",
        data=all_shard_settings(data),
        masking={"scheme": data.masking, "rate": data.masks.rate},
        sequence_length=data.sequence_length,
        max_predictions=max_predictions(data),
        duplicates=data.duplicates,
        seed=0,
        compression="none",
        engine={},
        tokenizer={
            "sha256": "", "kind": data.tokenizer, "size": data.vocab_size, "pad": pad,
        },
        corpora={"text": {}},
        totals={"tokens": tokens, "documents": ceil(tokens / DOCUMENT_TOKENS)},
        files={},
        shards=tuple(shards),
    )  # fmt: skip


def _shards(run: Run, split: str, tokens: int) -> list[Shard]:
    data, mean, found = run.data, mean_row(run), []
    masks = max(1, data.duplicates)  # one stands for those that the loader draws
    for number in range(ceil(tokens / _SHARD_TOKENS)):
        own = min(_SHARD_TOKENS, tokens - number * _SHARD_TOKENS)
        rows = max(1, round(own / mean))
        name = shard_name(split, number)
        # The two special tokens of a row are never predicted.
        predictions = round(data.masks.rate * (own - 2 * rows))
        size = _mask_bytes(data, own, rows, predictions) if data.duplicates else 0
        one = MaskFile(file="", predictions=predictions, bytes=size, xxh3_64="")
        found.append(
            Shard(
                file=rows_file(name), split=split, sequences=rows, tokens=own,
                bytes=_id_bytes(data) * own + ROW_BYTES * rows, xxh3_64="",
                masks=tuple(replace(one, file=mask_file(name, k)) for k in range(masks)),
            )
        )  # fmt: skip
    return found


def _id_bytes(data: DataSettings) -> int:
    return 4 if data.vocab_size > 1 << 16 else 2  # as shards store ids: uint16 where they fit


def _mask_bytes(data: DataSettings, tokens: int, rows: int, predictions: int) -> int:
    """Bytes of one mask of so many rows."""
    per_token, per_prediction, per_row = MASK_BYTES
    per_prediction += data.masks.random_share * _id_bytes(data)
    return round(per_token * tokens + per_prediction * predictions + per_row * rows)

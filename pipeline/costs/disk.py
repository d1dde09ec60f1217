"""A run and its data -> bytes on disk: text, documents, shards, staging, checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.config.run import Run
from pipeline.costs.estimate import Estimate
from pipeline.costs.expected_data import NOWHERE
from pipeline.data.shards.manifest import Manifest, Shard
from pipeline.loading.dataset import Dataset
from pipeline.loading.staging import RESERVE, staged_bytes

PARAMETER_BYTES = 3 * 4
"""Bytes of a checkpoint per parameter: its weight and the two moments, in float32."""
TEXT_BYTES = 4.2
"""Bytes of English in UTF-8 per token of a vocabulary of 50,000 (byte-level BPE: 4.2 to 4.4)."""
_TEXT_BAND = (3.5, 4.5)
DOCUMENT_SHARE = 0.40
"""Share of the text's bytes that Parquet with zstd takes: 2.55 times smaller."""
_DOCUMENT_BAND = (0.33, 0.50)
_TEXT_ASSUMPTION = f"{TEXT_BYTES} bytes of English per token; fewer with a small vocabulary"


def text_bytes(datasets: Sequence[Dataset]) -> Estimate:
    """Bytes of cleaned text; the same text at several lengths counts once."""
    counted = max(datasets, key=lambda dataset: _tokens(dataset.manifest)).manifest
    known = sum(corpus.get("bytes", 0) for corpus in counted.corpora.values())  # none for --tokens
    if known:
        return Estimate("raw text", known, "bytes", "computed", "as the manifests counted it")
    tokens = _tokens(counted)
    return Estimate(
        "raw text", TEXT_BYTES * tokens, "bytes", "estimated", _TEXT_ASSUMPTION,
        _TEXT_BAND[0] * tokens, _TEXT_BAND[1] * tokens,
    )  # fmt: skip


def disk(run: Run, parameters: int, datasets: Sequence[Dataset]) -> list[Estimate]:
    """Bytes on the shared file system, and on a node's own disk with --stage.

    parameters: trained; datasets: the training splits.
    """
    text = text_bytes(datasets)
    shards = [shard for dataset in datasets for shard in dataset.manifest.shards]
    train = [shard for dataset in datasets for shard in dataset.shards]
    expected = datasets[0].directory == NOWHERE
    size = _bytes(shards) + sum(
        file["bytes"] for dataset in datasets for file in dataset.manifest.files.values()
    )
    rows = "as many bytes per token and row as in the sample corpus"
    copies = run.checkpoint.most_kept(run.steps)
    kept = f"checkpoint.keep={run.checkpoint.keep}, one more while the next is written"
    if run.checkpoint.keep_every:
        kept += f", and every {run.checkpoint.keep_every:,} steps"
    if run.checkpoint.at_words:
        kept += f", and at {len(run.checkpoint.word_marks())} counts of words"
    one = parameters * PARAMETER_BYTES
    return [
        text,
        Estimate(
            "extracted documents", DOCUMENT_SHARE * text.value, "bytes", "estimated",
            "Parquet, 2 to 3 times smaller than text; only of dumps, WARC and tars",
            _DOCUMENT_BAND[0] * text.least, _DOCUMENT_BAND[1] * text.most,
        ),
        Estimate(
            "shards", size, "bytes", "estimated" if expected else "computed",
            rows if expected else "the files of the manifests",
            *((0.9 * size, 1.2 * size) if expected else (None, None)),
        ),
        Estimate(
            "staging, each node", staged_bytes(train), "bytes",
            "estimated" if expected else "computed",
            f"--stage: {_per_token(train):.2f} bytes per token for an epoch, the masks of the "
            f"next, {RESERVE / 1e9:.1f} GB free",
        ),
        Estimate("one checkpoint", one, "bytes", "computed", "weights and two moments in fp32"),
        Estimate("checkpoints", copies * one, "bytes", "computed", kept),
    ]  # fmt: skip


def _tokens(manifest: Manifest) -> int:
    return int(manifest.totals["tokens"])


def _bytes(shards: Sequence[Shard], masks: int | None = None) -> int:
    """Bytes of rows and masks; masks: count so many duplicates, None for all."""
    return sum(s.bytes + sum(mask.bytes for mask in s.masks[:masks]) for s in shards)


def _per_token(shards: Sequence[Shard]) -> float:
    return _bytes(shards, masks=1) / max(1, sum(shard.tokens for shard in shards))

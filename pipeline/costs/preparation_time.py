"""Bytes of text -> how long `pipeline.prepare` takes on some cores, and what bounds it."""

from __future__ import annotations

from pipeline.base.durations import in_words
from pipeline.config.run import Run
from pipeline.costs.estimate import Estimate
from pipeline.data.preparation.duration import STARTUP_SECONDS, Work, stage_seconds
from pipeline.data.text.tasks import SPLIT_BYTES

RATES = {"byte-bpe": 50e6, "wordpiece": 45e6, "unigram": 29e6}
"""Bytes of JSON lines to shards with ten masks, per second and core (RESULTS.md)."""
_BAND = (0.8, 1.25)
DISK_BANDWIDTH = (0.5e9, 2e9, 10e9)
"""Bytes per second of a shared file system, read and written; assumed."""


def preparation_time(run: Run, text: Estimate, shards: Estimate, cores: int) -> list[Estimate]:
    """The offline stage on `cores` cores, of one node or several; text, shards: bytes."""
    rate = RATES[run.data.tokenizer]
    work = Work("prepare", "a split", SPLIT_BYTES / rate, max(1.0, text.value / SPLIT_BYTES))
    cpu = stage_seconds([work], cores)
    moved = (text.value + shards.value) / DISK_BANDWIDTH[1]
    slowest = (text.most + shards.most) / DISK_BANDWIDTH[0]
    quickest = (text.least + shards.least) / DISK_BANDWIDTH[2]
    least = max(cpu / _BAND[1] * text.least / text.value, quickest)
    most = max(cpu / _BAND[0] * text.most / text.value, slowest)
    seconds = max(cpu, moved)
    bound = "the cores" if cpu >= moved else "the file system"
    return [
        Estimate(
            "core-hours", text.value / rate / 3600, "hours", "published",
            f"{rate / 1e6:.0f} MB/s of JSON lines per core, {run.data.tokenizer} (RESULTS.md); "
            "extraction comes first: dumps 2.5, web pages 14.7 MB/s",
            text.least / rate / 3600 / _BAND[1], text.most / rate / 3600 / _BAND[0],
        ),
        Estimate(
            "hours", (STARTUP_SECONDS + seconds) / 3600, "hours", "published",
            f"on {cores:,} cores, bound by {bound}: {in_words(cpu)} of work, {in_words(moved)} "
            f"to read and write at {DISK_BANDWIDTH[1] / 1e9:.0f} GB/s (assumed)",
            (STARTUP_SECONDS + least) / 3600, (STARTUP_SECONDS + most) / 3600,
        ),
    ]  # fmt: skip

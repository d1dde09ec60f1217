"""Checks that prepared directories can be read together, by a run with certain settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pipeline.base.errors import DataError
from pipeline.config.data_settings import all_shard_settings, prepared_settings
from pipeline.config.run import Run, in_phase
from pipeline.config.settings import as_set
from pipeline.config.training_settings import EarlierPhase
from pipeline.data.shards.manifest import Manifest
from pipeline.data.shards.predicted import check_predicted


class Prepared(Protocol):
    """A prepared directory, open or not; `Dataset` is one."""

    @property
    def directory(self) -> Path:
        """The directory's path."""

    @property
    def manifest(self) -> Manifest:
        """The directory's manifest."""


def check_datasets(
    datasets: Sequence[Prepared], settings: Mapping[str, object], tokenizer_sha256: str = ""
) -> None:
    """Raise DataError unless all datasets were prepared with the run's settings and tokenizer.

    settings: `config.data_settings.all_shard_settings`; tokenizer_sha256: of the
    tokenizer that the run started with, "" for a new run, which takes the first dataset's.
    """
    expected = tokenizer_sha256 or datasets[0].manifest.tokenizer["sha256"]
    whose, where = "the run's", "the one in a directory that the run started with"
    if not tokenizer_sha256:
        whose, where = f"that of {datasets[0].directory}", str(datasets[0].directory / "tokenizer")
    for dataset in datasets:
        prepared = prepared_settings(dataset.manifest.data, dataset.directory)
        kind, wanted = prepared.get("tokenizer"), settings.get("tokenizer")
        if wanted is not None and kind != wanted:
            raise DataError(
                f"{dataset.directory} was prepared with a tokenizer of another family, "
                f"data.tokenizer={kind}, the run's recipe has {wanted}; run pipeline.prepare with "
                f"this recipe, or give --set data.tokenizer={kind} if that is what you want"
            )
        for name, value in settings.items():
            if prepared.get(name) != value:  # None: a setting that these shards lack
                here, change = f"without data.{name}", "change them"
                if name in prepared:
                    here = f"with data.{name}={prepared[name]}"
                    change = f"give --set data.{name}={as_set(prepared[name])} here"
                raise DataError(
                    f"{dataset.directory} was prepared {here}, the run asks for {value}; run "
                    f"pipeline.prepare with the run's settings, or {change}"
                )
        found = dataset.manifest.tokenizer["sha256"]
        if found != expected:
            raise DataError(
                f"{dataset.directory} was prepared with tokenizer sha256 {found[:16]}, {whose} is "
                f"{expected[:16]}; prepare it again with that tokenizer, --tokenizer {where}"
            )


def runs_of(run: Run) -> list[tuple[int, int, Run]]:
    """(begin, end, settings) of each phase, see `training.planning.phases`."""
    left = run.steps - sum(phase.steps for phase in run.phases)
    last = EarlierPhase(
        steps=left,
        sequence_length=run.data.sequence_length,
        sequences=run.batch.sequences,
        settings=(),
    )
    found, begin = [], 0
    for phase in (*run.phases, last):
        found.append((begin, begin + phase.steps, in_phase(run, phase, begin == 0)))
        begin += phase.steps
    return found


def phases_begun(run: Run, step: int) -> list[Run]:
    """The settings of the phases that have begun before the end of `step`; a checkpoint of step 0
    belongs to the first."""
    return [part for begin, _, part in runs_of(run) if begin < max(1, step)]


def as_read(run: Run, dataset: Prepared) -> Run:
    """The settings in the phase that a dataset was prepared for: of the phases of its length the
    last that has its masks, else the last; `run` itself if no phase has its length."""
    length = dataset.manifest.sequence_length
    alike = [part for *_, part in runs_of(run) if part.data.sequence_length == length]
    masked = [part for part in alike if is_masked_for(part, dataset)]
    return [run, *alike, *masked][-1]  # the most specific one


def check_shards(run: Run, datasets: Sequence[Prepared], tokenizer_sha256: str) -> None:
    """Raises DataError unless all shards match the settings of the phases of their length and share
    one tokenizer, see `check_datasets`, and their masks predict something."""
    for dataset in datasets:
        check_predicted(dataset.directory, dataset.manifest)
        settings = all_shard_settings(as_read(run, dataset).data)
        check_datasets([dataset], settings, tokenizer_sha256)
    # Settings were compared per phase; a tokenizer is shared by all phases.
    check_datasets(datasets, {}, tokenizer_sha256)


def is_masked_for(part: Run, dataset: Prepared) -> bool:
    """True if a dataset was prepared with the masks of a phase."""
    prepared = prepared_settings(dataset.manifest.data, dataset.directory)
    return all(prepared.get(path) == value for path, value in mask_settings(part).items())


def mask_settings(part: Run) -> dict[str, object]:
    """The settings of shards that may differ between phases of a length, by path inside `data`."""
    return {
        path: value
        for path, value in all_shard_settings(part.data).items()
        if path in ("masking", "mask_mode", "duplicates") or path.startswith("masks.")
    }

"""RUN/run.json: what a run is, so that it can be resumed, exported and started again.

Holds the full Run, the plan derived from it, versions, the fingerprints of its data and the
attention backend. A run that goes on in the same directory must have the same settings, but for
the few that change neither what is learned nor in which order: `FREE_SETTINGS`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from pathlib import Path
from typing import Any

from pipeline.config.run import Run
from pipeline.config.schema import setting_types
from pipeline.config.settings import from_dict, to_dict
from pipeline.errors import CheckpointError, ConfigError
from pipeline.files import write_whole
from pipeline.loading.dataset import Dataset
from pipeline.loading.order import ORDER_VERSION
from pipeline.training.checkpoints.read import State

RECORD = "run.json"
FREE_SETTINGS = (
    "batch.per_device", "batch.packing", "data.reader", "data.damaged", "validation.every",
    "checkpoint.every", "checkpoint.keep", "checkpoint.keep_every", "logging.every",
    "logging.hang_seconds",
)  # fmt: skip
"""Settings that may change when a run is resumed: whoever stopped at a damaged shard may go on."""
FORK_SETTINGS = (
    "data.tokenizer", "data.vocab_size", "encoder.layers", "encoder.width", "encoder.heads",
    "encoder.feed_forward", "encoder.activation", "encoder.layer_norm_eps", "encoder.positions",
    "encoder.position_offset", "encoder.segment_types", "encoder.embedding_width",
    "encoder.sharing", "encoder.groups", "objective.kind",
    "objective.generator.layers", "objective.generator.width", "objective.generator.tied",
)  # fmt: skip
"""Settings that weights are bound to, so that a fork has to share them."""
PACKAGES = ("tenfold", "torch", "deepspeed", "numpy", "pyarrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The content of run.json."""

    run: Run
    plans: Sequence[Mapping[str, Any]]
    """Numbers derived from the run, its data and its machines, of each phase."""
    data: Sequence[Mapping[str, Any]]
    """Directory, fingerprint and rows of each dataset, in the order given."""
    tokenizer_sha256: str
    order_version: int
    """Of the order of samples, see `pipeline.loading.order`."""
    attention: str
    """What computes attention."""
    begun_from: str
    """The checkpoint that the run was forked from, "" when it began anew."""
    initial_weights: Mapping[str, Any]
    """Of the folder that it began with: name, hash, what was new; empty when it began with none."""
    versions: Mapping[str, str]

    @classmethod
    def of(
        cls,
        run: Run,
        plans: Sequence[Mapping[str, Any]],
        datasets: Sequence[Dataset],
        attention: str,
        begun_from: str = "",
    ) -> Record:
        """The record of a run on this machine."""
        return cls(
            run=run,
            plans=plans,
            data=_described(datasets),
            tokenizer_sha256=datasets[0].manifest.tokenizer["sha256"],
            order_version=ORDER_VERSION,
            attention=attention,
            begun_from=begun_from,
            initial_weights={},
            versions={name: _version(name) for name in PACKAGES},
        )

    @property
    def fingerprints(self) -> dict[str, str]:
        """Of the tokenizer and each dataset, for checkpoints."""
        datasets = {f"data-{i}": str(part["fingerprint"]) for i, part in enumerate(self.data)}
        return {"tokenizer": self.tokenizer_sha256} | datasets

    @property
    def directories(self) -> list[Path]:
        """Where the datasets were."""
        return [Path(dataset["directory"]) for dataset in self.data]

    def write(self, run: Path) -> None:
        """Write RUN/run.json."""
        content = {
            "run": to_dict(self.run), "plans": self.plans, "data": self.data,
            "tokenizer_sha256": self.tokenizer_sha256, "order_version": self.order_version,
            "attention": self.attention, "begun_from": self.begun_from,
            "initial_weights": self.initial_weights, "versions": self.versions,
        }  # fmt: skip
        write_whole(run / RECORD, json.dumps(content, indent=1).encode())


def read_record(run: Path) -> Record:
    """RUN/run.json; CheckpointError when there is none or it is not one."""
    path = run / RECORD
    if not path.exists():
        raise CheckpointError(f"{run} holds no {RECORD}; name a directory that pipeline.train made")
    try:
        content = json.loads(path.read_bytes())
        return Record(**content | {"run": from_dict(Run, content["run"])})
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); restore it from a copy") from error


def read_run(path: Path) -> Run:
    """The Run in a run.json, or in a file with the Run alone; for `--run`."""
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, OSError) as error:
        raise ConfigError(f"--run {path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"--run {path} holds no settings; give the run.json of a run")
    whole = isinstance(content.get("run"), dict)
    return from_dict(Run, content["run"] if whole else content)


def check_same(earlier: Record, run: Run, datasets: Sequence[Dataset], directory: Path) -> None:
    """CheckpointError naming a difference between the run in `directory` and the one asked for."""
    for path in setting_types(Run):
        before, now = attrgetter(path)(earlier.run), attrgetter(path)(run)
        if before != now and path not in FREE_SETTINGS:
            raise CheckpointError(
                f"{directory} was begun with {path}={before}, now it is {now}; repeat the first "
                f"command, name another --output, or fork it there with --from {directory}"
            )
    before = [dataset["fingerprint"] for dataset in earlier.data]
    now = [dataset.manifest.fingerprint for dataset in datasets]
    if before != now:
        raise CheckpointError(
            f"{directory} was begun with data {_in_words(earlier.data)}; now it is "
            f"{_in_words(_described(datasets))}. Give the same --data in the same order, "
            f"or begin a new run there with the data of now, read from their beginning: the same "
            f"command with --from {directory} --output {directory}-2"
        )
    if earlier.order_version != ORDER_VERSION:
        raise CheckpointError(
            f"{directory} was begun with sample order {earlier.order_version}, this version has "
            f"{ORDER_VERSION}; go on with the version that began it"
        )


def check_source(state: State, record: Record, directory: Path, forked: bool) -> None:
    """CheckpointError naming why a run cannot go on from a checkpoint, or fork it."""
    saved = from_dict(Run, state.run)
    for path in setting_types(Run):
        before, now = attrgetter(path)(saved), attrgetter(path)(record.run)
        needed = path in FORK_SETTINGS if forked else path not in FREE_SETTINGS
        if before != now and needed:
            advice = "set it to that" if forked else "it was copied from another run; remove it"
            raise CheckpointError(
                f"{directory} is of a run with {path}={before}, this one has {now}; {advice}"
            )
    for name, now in record.fingerprints.items():
        before = state.fingerprints.get(name, "none")
        if before != now and (name == "tokenizer" or not forked):
            advice = (
                "give data with the same tokenizer" if forked else "give the data it began with"
            )
            raise CheckpointError(
                f"{directory} is of a run with {name} {before}, this one has {now}; {advice}"
            )


def _described(datasets: Sequence[Dataset]) -> list[dict[str, Any]]:
    return [
        {
            "directory": str(dataset.directory.resolve()),
            "fingerprint": dataset.manifest.fingerprint,
            "sequences": int(dataset.shard_rows.sum()),
        }
        for dataset in datasets
    ]


def _in_words(data: Sequence[Mapping[str, Any]]) -> str:
    return " + ".join(
        f"{part['directory']} ({part['sequences']:,} sequences, {part['fingerprint']})"
        for part in data
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""

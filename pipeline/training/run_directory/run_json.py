"""RUN/run.json: the description of a run, from which it can be resumed, exported and repeated.

Holds all settings, the plan derived from them, versions, the fingerprints of the data and the
kernel of attention. A run that resumes in the same directory must have the same settings, except
`FREE_SETTINGS`, which change neither what is learned nor in which order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from pathlib import Path
from typing import Any

from pipeline.base.errors import CheckpointError, ConfigError
from pipeline.base.files import write_whole
from pipeline.base.null_device import check_same_device
from pipeline.base.typed_json import build, read_object, require
from pipeline.config.run import Run
from pipeline.config.schema import setting_types
from pipeline.config.settings import from_dict, to_dict
from pipeline.loading.compatibility import phases_begun, runs_of
from pipeline.loading.dataset import Dataset
from pipeline.loading.order import MIXTURE_VERSION, ORDER_VERSION
from pipeline.training.checkpoints.read import State

FORMAT = 1
"""Version of run.json's entries. Settings have their own mechanism, see `schema.Legacy`."""
RECORD = "run.json"
FREE_SETTINGS = (
    "batch.per_device", "data.reader", "data.damaged", "validation.every",
    "validation.grammar", "validation.grammar_pairs", "checkpoint.every", "checkpoint.keep",
    "checkpoint.keep_every", "checkpoint.at_words", "checkpoint.exportable", "logging.every",
    "logging.hang_seconds", "logging.to",
)  # fmt: skip
"""Settings that may change on a resume; data.damaged lets a run continue after damage."""
FORK_SETTINGS = (
    "data.tokenizer", "data.vocab_size", "encoder.layers", "encoder.width", "encoder.heads",
    "encoder.feed_forward", "encoder.activation", "encoder.layer_norm_eps", "encoder.positions",
    "encoder.position_offset", "encoder.segment_types", "encoder.embedding_width",
    "encoder.sharing", "encoder.groups", "encoder.norm", "encoder.gated", "encoder.biases",
    "encoder.position_kind", "objective.kind",
    "objective.generator.layers", "objective.generator.width", "objective.generator.tied",
    "objective.generator.embeddings",
)  # fmt: skip
"""Settings that the weights depend on; a fork must have the same ones."""
PACKAGES = ("tenfold", "torch", "deepspeed", "numpy", "pyarrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The content of run.json."""

    run: Run
    plans: Sequence[Mapping[str, Any]]
    """For each phase, the numbers derived from the run, its data and its machines."""
    data: Sequence[Mapping[str, Any]]
    """Directory, fingerprint and rows of each dataset, in the order given; `languages` of its
    corpora too where a phase mixes languages."""
    tokenizer_sha256: str
    order_version: int
    """Version of the order of samples, see `pipeline.loading.order`."""
    device: str
    """`cpu`, a GPU's name, or `null`, see `pipeline.base.null_device`."""
    begun_from: str
    """The checkpoint that the run was forked from, "" if it is not a fork."""
    initial_weights: Mapping[str, Any]
    """The folder of --init: its name and hash, and what is new; empty without --init."""
    versions: Mapping[str, str]
    attention: str
    """The kernel of attention that the run's first start chose, see `model.attention`; "" if none
    is chosen yet."""
    initial_length: int
    """Tokens of the longest rows for which the run's first weights were trained, in the folder of
    --init or in the forked run; 0 for the recipe's weights."""
    classifier_pooling: str
    """What stands for a row in task heads that start from the run's weights: as the folder of
    --init says, or the forked run. Pretraining has no use for it; exports and fine-tuning have."""

    @classmethod
    def of(
        cls,
        run: Run,
        plans: Sequence[Mapping[str, Any]],
        datasets: Sequence[Dataset],
        begun_from: str = "",
        device: str = "",
    ) -> RunRecord:
        """The record of a run on this machine."""
        return cls(
            run=run,
            plans=plans,
            data=_describe(run, datasets),
            tokenizer_sha256=datasets[0].manifest.tokenizer["sha256"],
            order_version=_order_version(run),
            device=device,
            begun_from=begun_from,
            initial_weights={},
            versions={name: _version(name) for name in PACKAGES},
            attention="",
            initial_length=0,
            classifier_pooling="cls",
        )

    @property
    def fingerprints(self) -> dict[str, str]:
        """Fingerprints of the tokenizer and of each dataset, for checkpoints."""
        datasets = {f"data-{i}": str(part["fingerprint"]) for i, part in enumerate(self.data)}
        return {"tokenizer": self.tokenizer_sha256} | datasets

    def trained_length(self, step: int) -> int:
        """Tokens of the longest rows that the weights of a step were trained on, by this run or
        before it."""
        return max(self.initial_length, trained_length(self.run, step))

    @property
    def directories(self) -> list[Path]:
        """The directories of the datasets."""
        return [Path(dataset["directory"]) for dataset in self.data]

    def write(self, run: Path) -> None:
        """Write RUN/run.json."""
        content = {
            "format": FORMAT, "run": to_dict(self.run), "plans": self.plans, "data": self.data,
            "tokenizer_sha256": self.tokenizer_sha256, "order_version": self.order_version,
            "attention": self.attention, "device": self.device, "begun_from": self.begun_from,
            "initial_weights": self.initial_weights, "versions": self.versions,
            "initial_length": self.initial_length, "classifier_pooling": self.classifier_pooling,
        }  # fmt: skip
        write_whole(run / RECORD, json.dumps(content, indent=1).encode())


def read_record(run: Path) -> RunRecord:
    """Read RUN/run.json. Raises CheckpointError if it is missing or cannot be read."""
    path = run / RECORD
    if not path.exists():
        raise CheckpointError(f"{run} has no {RECORD}; name a directory that pipeline.train made")
    try:
        content = read_object(path)
        if content.pop("format", None) != FORMAT:
            raise ValueError(f"it is not of format {FORMAT}")
        require(content, {"run": dict}, "it")
        record = build(RunRecord, content | {"run": from_dict(Run, content["run"])})
        if not record.data:
            raise ValueError("data is empty")
        # `build` does not look into mappings.
        for number, part in enumerate(record.data):
            require(
                part, {"directory": str, "fingerprint": str, "sequences": int}, f"data[{number}]"
            )
    # Kept apart: the user can fix a setting, and each problem is a line of its own.
    except ConfigError as error:
        first, *_ = str(error).split("\n")
        raise ConfigError(f"{path}: {first}", error.problems) from error
    except (ValueError, OSError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}); restore it from a copy, or use the version of "
            "Tenfold that wrote it"
        ) from error
    return record


def trained_length(run: Run, step: int) -> int:
    """Tokens of the longest rows of the phases that a run has begun before the end of `step`."""
    return max(part.data.sequence_length for part in phases_begun(run, step))


def source_length(state: State, run: Path) -> int:
    """`RunRecord.trained_length` of a checkpoint to fork; run: its run directory, which may lack
    run.json if only the checkpoint was copied."""
    if (run / RECORD).exists():
        return read_record(run).trained_length(state.step)
    return trained_length(from_dict(Run, state.run), state.step)


def recorded_pooling(run: Path) -> str:
    """`RunRecord.classifier_pooling` of a run directory, which may lack run.json as above."""
    return read_record(run).classifier_pooling if (run / RECORD).exists() else "cls"


def check_same_run(
    earlier: RunRecord, run: Run, datasets: Sequence[Dataset], directory: Path
) -> None:
    """Raises CheckpointError if the run in `directory` differs from the requested one."""
    for path in setting_types(Run):
        before, now = attrgetter(path)(earlier.run), attrgetter(path)(run)
        if before != now and path not in FREE_SETTINGS:
            raise CheckpointError(
                f"{directory} was started with {path}={before}, now it is {now}; repeat the first "
                f"command, name another --output, or fork it there with --from {directory}"
            )
    described = _describe(run, datasets)
    before = [dataset["fingerprint"] for dataset in earlier.data]
    if before != [dataset.manifest.fingerprint for dataset in datasets]:
        raise CheckpointError(
            f"{directory} was started with data {_in_words(earlier.data)}; now it is "
            f"{_in_words(described)}. Give the same --data in the same order, or start "
            f"a new run that reads the current data from the first sequence: the same command with "
            f"--from {directory} --output {directory}-2"
        )
    for old, new in zip(earlier.data, described, strict=True):
        # Recorded only for mixtures of languages, where another language changes the weights.
        was, is_now = old.get("languages", {}), new.get("languages", {})
        for corpus in was | is_now:
            if was.get(corpus) != is_now.get(corpus):
                raise CheckpointError(
                    f"{directory} was started with {corpus} of {new['directory']} in language "
                    f"{was.get(corpus, '(none)')}, now it is {is_now.get(corpus, '(none)')}, which "
                    f"changes the order of samples; fork the run: --from {directory} --output "
                    f"{directory}-2"
                )
    if earlier.order_version != (expected := _order_version(run)):
        raise CheckpointError(
            f"{directory} was started with sample order {earlier.order_version}, this version has "
            f"{expected}; continue with the version that started it"
        )


def _order_version(run: Run) -> int:
    """That of the orders of samples of a run."""
    mixed = any(part.batch.is_mixed for *_, part in runs_of(run))
    # Two versions, so that a change of mixtures leaves runs that read by size as they are.
    return MIXTURE_VERSION if mixed else ORDER_VERSION


def check_source(state: State, record: RunRecord, directory: Path, forked: bool) -> None:
    """Raises CheckpointError if a run cannot resume from a checkpoint, or fork it."""
    check_same_device(state.device, record.device, directory)
    saved = from_dict(Run, state.run)
    for path in setting_types(Run):
        before, now = attrgetter(path)(saved), attrgetter(path)(record.run)
        needed = path in FORK_SETTINGS if forked else path not in FREE_SETTINGS
        if before != now and needed:
            advice = "set it to that" if forked else "it was copied from another run; remove it"
            raise CheckpointError(
                f"{directory} belongs to a run with {path}={before}, this one has {now}; {advice}"
            )
    for name, now in record.fingerprints.items():
        before = state.fingerprints.get(name, "none")
        # A fork may read other text, but ids must mean the same tokens.
        if before != now and (name == "tokenizer" or not forked):
            advice = (
                "give data with the same tokenizer" if forked else "give the data it started with"
            )
            raise CheckpointError(
                f"{directory} belongs to a run with {name} {before}, this one has {now}; {advice}"
            )


def _describe(run: Run, datasets: Sequence[Dataset]) -> list[dict[str, Any]]:
    mixed = any(
        part.batch.is_mixed and part.batch.mixture_over == "languages" for *_, part in runs_of(run)
    )
    return [
        {
            "directory": str(dataset.directory.resolve()),
            "fingerprint": dataset.manifest.fingerprint,
            "sequences": dataset.rows,
        }
        | ({"languages": _languages_of(dataset)} if mixed else {})
        for dataset in datasets
    ]


def _languages_of(dataset: Dataset) -> dict[str, str]:
    corpora = dataset.manifest.corpora.items()
    return {corpus: about["language"] for corpus, about in corpora if "language" in about}


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

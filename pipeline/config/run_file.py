"""The file of `--run`: the run.json of a run, or a JSON file with the settings alone."""

from __future__ import annotations

from pathlib import Path

from pipeline.base.errors import ConfigError
from pipeline.base.typed_json import read_object
from pipeline.config.run import Run
from pipeline.config.settings import from_dict


def read_run(path: Path) -> Run:
    """The settings in a run.json, or in a file with the settings alone; for `--run`."""
    try:
        content = read_object(path)
    except (ValueError, OSError) as error:
        raise ConfigError(
            f"--run {path} cannot be read: {error}; give the run.json of a run"
        ) from error
    whole = isinstance(content.get("run"), dict)
    try:
        return from_dict(Run, content["run"] if whole else content)
    except ConfigError as error:
        first, *_ = str(error).split("\n")
        raise ConfigError(f"--run {path}: {first}", error.problems) from error

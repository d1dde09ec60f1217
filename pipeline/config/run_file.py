"""The file of `--run`: the run.json of a run, or a JSON file with the settings alone."""

from __future__ import annotations

import json
from pathlib import Path

from pipeline.config.run import Run
from pipeline.config.settings import from_dict
from pipeline.errors import ConfigError


def read_run(path: Path) -> Run:
    """The settings in a run.json, or in a file with the settings alone; for `--run`."""
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, OSError) as error:
        raise ConfigError(f"--run {path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"--run {path} holds no settings; give the run.json of a run")
    whole = isinstance(content.get("run"), dict)
    return from_dict(Run, content["run"] if whole else content)

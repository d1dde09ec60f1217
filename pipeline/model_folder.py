"""Detects a user's folder or file `model` that hides ours.

`python -m` puts the current directory first on the path, and `model` is a common name. Commands
that use the network check this before they import `model`, so that such a folder ends in one line
instead of a ModuleNotFoundError. Preparing does not use the network and is not affected.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from pipeline.errors import ConfigError

MARK = "hugging_face.py"
"""A file of our `model`, by which it is recognized."""


def check_model_folder() -> None:
    """Raises ConfigError if `import model` would find another folder or file than ours."""
    spec = find_spec("model")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if any((Path(folder) / MARK).is_file() for folder in folders):
        return
    if spec is None:
        raise ConfigError("Tenfold's folder model is missing beside pipeline; install it again")
    found = spec.origin or ", ".join(folders)
    raise ConfigError(
        f"{found} hides Tenfold's own folder model; run the command in another directory, or "
        "rename yours"
    )

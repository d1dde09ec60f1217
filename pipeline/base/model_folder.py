"""Checks of commands that use the neural network, before they import it.

`python -m` puts the current directory first on the path, and `model` is a common name: a user's
folder or file of that name hides ours. And torch may not be installed. Both end in one line instead
of a ModuleNotFoundError, and --help works without either. Preparing needs neither.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from pipeline.base.command_line import parse_before
from pipeline.base.errors import ConfigError

MARK = "hugging_face/families.py"
"""A file of our `model`, by which it is recognized."""


def check_imports(parse: Callable[[], object]) -> None:
    """Raises ConfigError if `model` or torch cannot be imported.

    parse: reads the command line, so that --help and its mistakes end before torch is needed.
    """
    check_model_folder()
    parse_before("torch", parse)
    try:
        import_module("torch")
    except (ImportError, OSError) as error:  # OSError: a library of the GPU is missing
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"torch cannot be imported ({reason}): install the build that fits this machine, then "
            "pip install '.[training]'"
        ) from error


def check_model_folder() -> None:
    """Raises ConfigError if `import model` would find another folder or file than ours."""
    spec = find_spec("model")  # without running it
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if any((Path(folder) / MARK).is_file() for folder in folders):
        return
    if spec is None:
        raise ConfigError("Tenfold's folder model is missing next to pipeline; reinstall Tenfold")
    found = spec.origin or ", ".join(folders)
    raise ConfigError(
        f"{found} hides Tenfold's own folder model; run the command in another directory, or "
        "rename yours"
    )

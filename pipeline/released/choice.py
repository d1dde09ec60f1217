"""RECIPE of a command line -> the settings of a run, and the model that it continues, if any.

RECIPE is the name of a recipe, the run.json of a run, the path of a folder of transformers, which
has a slash, or `hf:ORG/NAME`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.base.command_line import HUB, data_root
from pipeline.base.errors import ConfigError
from pipeline.base.model_folder import check_model_folder
from pipeline.base.typed_json import read_object
from pipeline.config.run import Run
from pipeline.config.settings import from_dict, override
from pipeline.recipes import RECIPES, recipe

if TYPE_CHECKING:
    from pipeline.released.folder import ReleasedModel


@dataclass(frozen=True, slots=True)
class Recipe:
    """The settings that a command line starts from."""

    run: Run
    """The settings with the changes of --set."""
    given: Run
    """The settings without them."""
    model: ReleasedModel | None = None
    """The model that it continues; None for a recipe's name and a run.json."""
    origin: str = ""
    """The model's name and commit on the Hub, `hf:ORG/NAME@COMMIT`."""
    changed: tuple[str, ...] = ()
    """Paths of the settings that --set changed."""

    def with_changes(self, changes: Sequence[str]) -> Recipe:
        """The same with the settings of --set; steps replace the epochs of a run.json.

        Raises ConfigError for both.
        """
        paths = tuple(change.partition("=")[0].strip() for change in changes)
        run = override(self.run, changes)
        if "steps" in paths and run.epochs:
            if "epochs" in paths:
                raise ConfigError(
                    f"steps={run.steps} and epochs={run.epochs:g} both say how long to train; "
                    "give one of them"
                )
            run = replace(run, epochs=0.0)
        return replace(self, run=run, changed=paths)

    def within_passes(self, rows: int) -> Run:
        """The run of so many training rows: one that continues a model reads them ten times at
        most, unless --set says otherwise."""
        if self.model is None:
            return self.run
        from pipeline.released.continued import within_passes  # numpy and `model`, only for a model

        return within_passes(self.run, self.changed, rows)

    @property
    def folder(self) -> Path | None:
        """The folder whose tokenizer and weights a run takes."""
        return None if self.model is None else self.model.folder


def read_settings_file(path: Path) -> Run:
    """The settings in a run.json, or in a file with only the settings."""
    try:
        content = read_object(path)
    except (ValueError, OSError) as error:
        raise ConfigError(
            f"the recipe {path} cannot be read: {error}; give the run.json of a run"
        ) from error
    whole = isinstance(content.get("run"), dict)  # run.json has more than the settings
    try:
        return from_dict(Run, content["run"] if whole else content)
    except ConfigError as error:
        first, *_ = str(error).split("\n")
        raise ConfigError(f"the recipe {path}: {first}", error.problems) from error


def read_recipe(name: str, changes: Sequence[str] = ()) -> Recipe:
    """The settings of RECIPE with the changes of --set.

    Raises ConfigError for what is not a recipe, a run.json or a model.
    """
    return _read_named(name).with_changes(changes)


def head_advice(chosen: Recipe) -> str:
    """The heads that a run would train from nothing, and how to choose that; "" if none."""
    if chosen.model is None:
        return ""
    from pipeline.released.folder import MASKED, TRAINED_HEADS

    kind = chosen.run.objective.kind
    if not (lacking := chosen.model.lacking(kind)):
        return ""
    start = "new ones" if lacking[1:] else "a new one"
    without = ""
    if MASKED in TRAINED_HEADS[kind] and MASKED not in lacking:
        without = ", or --set objective.kind=mlm to train only masked words"
    return (
        f"{chosen.model.folder} has no head {' and none '.join(lacking)}, which objective.kind="
        f"{kind} trains; train with --new heads to start with {start}{without}"
    )


def _read_named(name: str) -> Recipe:
    if name in RECIPES:
        return _unchanged(recipe(name))
    if name.endswith(".json"):
        return _unchanged(read_settings_file(Path(name)))
    if name.startswith(HUB):
        check_model_folder()  # the user's folder `model` must not hide ours in the imports below
        from pipeline.released.hub_models import fetch_model

        found = fetch_model(name.removeprefix(HUB), data_root() / "models")
        # NAME of ORG/NAME@COMMIT.
        label = found.origin.removeprefix(HUB).partition("@")[0].rpartition("/")[2]
        return _read_continued(found.folder, label, found.origin)
    folder = Path(name)
    # Only a slash makes it a folder: one that happens to be here never stands in for a recipe.
    if "/" not in name:
        if folder.is_dir():
            raise ConfigError(
                f"{name} is a folder, not a recipe; write ./{name} to continue the model in it"
            )
        return _unchanged(recipe(name))
    if not folder.is_dir():
        raise ConfigError(
            f"{name} is not a folder; name one with config.json and model.safetensors, a model on "
            f"the Hub as hf:{name}, or a recipe that `tenfold recipes` lists"
        )
    return _read_continued(folder, folder.resolve().name)


def _read_continued(folder: Path, label: str, origin: str = "") -> Recipe:
    """A recipe's name needs neither numpy nor `model`, which a model does: imported here."""
    check_model_folder()
    from pipeline.released.continued import continued_run
    from pipeline.released.folder import read_released

    model = read_released(folder)
    return _unchanged(continued_run(model, label), model, origin)


def _unchanged(run: Run, model: ReleasedModel | None = None, origin: str = "") -> Recipe:
    return Recipe(run, run, model, origin)

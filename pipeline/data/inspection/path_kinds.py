"""Describes a run, checkpoint, model, fine-tuning or folder of them, and its uses.

Of models only JSON is read, so this needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.base.command_line import data_root, next_lines, unused_path
from pipeline.base.errors import ConfigError, DataError
from pipeline.base.typed_json import as_object, read_object
from pipeline.data.shards.manifest import MANIFEST
from pipeline.execution.work_directory import WORK
from pipeline.recipes import RECIPES, recipe

RUN, STATE, MODEL = "run.json", "state.json", "config.json"
WEIGHTS = "model.safetensors"
_TUNING, _SCORES = "finetune.json", "scores.json"
_CHECKPOINTS = "checkpoints"
_PRETRAINED = ("ForMaskedLM", "ForPreTraining")
"""Ends of the names of classes whose folders have all that a recipe needs."""
_MOST_SHOWN = 20
"""Folders that are listed."""


def describe_place(path: Path) -> list[str]:
    """Lines about a path that holds neither shards, a tokenizer nor text; empty for others.

    Raises ConfigError if nothing is there, and DataError if its description cannot be read.
    """
    if not path.exists():
        raise ConfigError(f"{path}: no such directory or file; give one that a command has written")
    if not path.is_dir():
        return []
    if not any(path.iterdir()):
        raise ConfigError(
            f"{path} is an empty folder; fill it with pipeline.prepare ... --output {path}, or put "
            f"text there and run pipeline.prepare --corpus {path}"
        )
    if (path / RUN).exists():
        return _describe(path / RUN, _run)
    if (path / STATE).exists() and (lines := _describe(path / STATE, _checkpoint)):
        return lines
    if (path / MODEL).exists() and (lines := _describe(path / MODEL, _model)):
        return lines
    if (path / _TUNING).exists():
        if (path / _SCORES).exists():
            return _describe(path / _SCORES, _fine_tuning)
        return _describe(path / _TUNING, _unfinished_tuning)
    return _folder(path)


def _describe(file: Path, describe: Callable[[Path], list[str]]) -> list[str]:
    """Lines about the folder of a file; DataError if the file is damaged."""
    try:
        return describe(file.parent)
    except KeyError as error:
        raise DataError(f"{file} is damaged: it lacks {error}; restore it from a copy") from error
    except (ValueError, TypeError, AttributeError, OSError) as error:
        raise DataError(f"{file} is damaged: {error}; restore it from a copy") from error


def _run(path: Path) -> list[str]:
    record = read_object(path / RUN)
    settings, directories = record["run"], [part["directory"] for part in record["data"]]
    # numbers, as names sort step-9 after step-10
    steps = [int(name.removeprefix("step-")) for name in _names(path / _CHECKPOINTS, "step-*")]
    state = " (running)" if (path / "ready").exists() else ""
    if (path / "INTERRUPTED").exists():
        state = " (interrupted)"
    lines = [f"{path}: a run of {settings['name']}{state}"]
    reached = max(steps, default=0)
    lines.append(
        f"  checkpoints  {len(steps)}, the newest at step {reached:,} of {settings['steps']:,}"
    )
    if metrics := _last_metrics(path / "metrics.jsonl"):
        names = ("loss", "validation_loss")
        shown = ", ".join(f"{name} {metrics[name]:.4f}" for name in names if metrics.get(name))
        lines.append(f"  metrics      step {metrics['step']:,}: {shown}")
    lines += [f"  data         {directory}" for directory in directories]
    calls: list[list[object]] = []
    if reached < settings["steps"]:
        calls.append(["train", "--run", path / RUN, "--data", *directories, "--output", path])
    if steps:
        if settings.get("checkpoint", {}).get("exportable", True):
            calls.append(["export", path, "--output", unused_path(Path(f"{path}-export"))])
        calls.append(["evaluate", path, "--data", *directories])
    return [*lines, *next_lines(*calls)]


def _checkpoint(path: Path) -> list[str]:
    """Empty for a state.json of something else, such as `datasets`."""
    state = read_object(path / STATE)
    if not {"step", "run"} <= state.keys():
        return []
    settings = state["run"]
    size = sum(file.stat().st_size for file in path.iterdir())
    run, name, step = path.parent.parent, settings["name"], state["step"]
    about = (
        f"{path}: a checkpoint of {name} at step {step:,} of {settings['steps']:,}, "
        f"{size / 1e6:,.1f} MB"
    )
    if not (run / RUN).exists():  # it was copied without its run
        return [about]
    data = [part["directory"] for part in read_object(run / RUN)["data"]]
    calls: list[list[object]] = []
    if settings.get("checkpoint", {}).get("exportable", True):
        exported = unused_path(Path(f"{run}-{step}"))
        calls.append(["export", run, "--step", step, "--output", exported])
    if step < settings["steps"]:
        forked = unused_path(Path(f"{run}-from-{step}"))
        fork = ["train", "--run", run / RUN, "--from", path, "--data", *data, "--output", forked]
        calls.append(fork)
    return [about, *next_lines(*calls)]


def _has(path: Path, *keys: str) -> bool:
    """True if a JSON file has these keys; state.json is also a name in folders of `datasets`."""
    try:
        return {*keys} <= read_object(path).keys()
    except (ValueError, OSError):
        return False


def _model(path: Path) -> list[str]:
    """Empty for a config.json of something else."""
    config = read_object(path / MODEL)
    if "model_type" not in config:
        return []
    kind = (config.get("architectures") or [config["model_type"]])[0]
    named = {"num_hidden_layers": "layers", "hidden_size": "wide", "vocab_size": "ids"}
    sizes = [f"{config[key]:,} {word}" for key, word in named.items() if key in config]
    size = sum(file.stat().st_size for file in path.glob("*.safetensors"))
    about = f"{path}: a model for transformers, {', '.join([kind, *sizes])}; {size / 1e6:,.1f} MB"
    family = config["model_type"]
    is_whole = (path / WEIGHTS).exists() and (family != "electra" or (path / "generator").is_dir())
    if f"{family}_base" not in RECIPES or not kind.endswith(_PRETRAINED) or not is_whole:
        return [about]
    folder = path if path.is_absolute() else f"./{path}"
    shards = data_root() / "shards" / f"sample-{path.resolve().name}"
    run = unused_path(Path("runs") / path.resolve().name)
    calls: list[list[object]] = []
    if not (shards / MANIFEST).exists():
        calls.append(["prepare", "--corpus", "sample", "--recipe", folder, "--output", shards])
    # pairs of segments are predicted by a head that ForMaskedLM lacks
    if kind.endswith("ForPreTraining") or recipe(f"{family}_base").objective.kind == "mlm":
        calls.append(["train", folder, "--data", shards, "--output", run])
    return [about, *next_lines(*calls, ["evaluate", path, "--data", shards])]


def _unfinished_tuning(path: Path) -> list[str]:
    task = read_object(path / _TUNING)["task"]
    return [f"{path}: a fine-tuning on {task}, unfinished; run its command again to resume"]


def _fine_tuning(path: Path) -> list[str]:
    task = read_object(path / _TUNING)["task"]
    record = read_object(path / _SCORES)
    shown = ", ".join(f"{name} {found['median']:.4f}" for name, found in record["scores"].items())
    lines = [f"{path}: {record['model']['origin']}, fine-tuned on {task}", f"  scores  {shown}"]
    model = path / "model"
    if model.is_dir():  # an ablation removes it
        lines.append(f"  model   {model}, for transformers")
    return lines


def _folder(path: Path) -> list[str]:
    """A list of what is in a folder of shards, runs, checkpoints, models or tokenizers."""
    if (path / WORK).exists():
        return []  # unfinished shards
    marks = {
        MANIFEST: "shards", WORK: "unfinished shards", RUN: "a run", _TUNING: "a fine-tuning",
        "word_starts.bin": "a tokenizer",
    }  # fmt: skip
    found = {}
    for folder in sorted(folder for folder in path.iterdir() if folder.is_dir()):
        kinds = [kind for mark, kind in marks.items() if (folder / mark).exists()]
        kinds += ["a checkpoint"] * _has(folder / STATE, "step", "run")
        kinds += ["a model"] * _has(folder / MODEL, "model_type")
        if kinds:
            found[folder] = kinds[0]
    others = [other for other in path.iterdir() if other.is_file() and other.name != "latest"]
    if not found or others:
        return []
    lines = [f"  {folder}: {kind}" for folder, kind in list(found.items())[:_MOST_SHOWN]]
    if len(found) > _MOST_SHOWN:
        lines.append(f"  ... and {len(found) - _MOST_SHOWN:,} more")
    first = next_lines(("inspect", next(iter(found))))
    return [f"{path}: a folder of {len(found):,} results", *lines, *first]


def _names(folder: Path, pattern: str) -> list[str]:
    return [path.name for path in folder.glob(pattern) if path.is_dir()]


def _last_metrics(path: Path) -> dict[str, Any]:
    """The last whole line of metrics.jsonl; empty without one."""
    if not path.exists():
        return {}
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - (1 << 16)))  # it grows with the run; a line is short
        lines = file.read().splitlines(keepends=True)
    whole = [line for line in lines if line.endswith(b"\n")]  # a run may be writing the last one
    try:
        return as_object(whole[-1]) if whole else {}
    except ValueError:
        return {}  # a crash damaged its end

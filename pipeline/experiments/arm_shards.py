"""Shards for the arms: a corpus is prepared once for each data format, not for each arm.

OUTPUT/shards/KEY, where KEY is the hash of the settings that decide the bytes of shards. The arms'
tokenizers are found or trained by pipeline.prepare, so arms with the same kind, size and case of
tokenizer share one.
"""

from __future__ import annotations

import json
from pathlib import Path

from pipeline.base.errors import DataError
from pipeline.base.files import make_directory, one_at_a_time, write_whole
from pipeline.config.data_settings import shard_settings
from pipeline.config.run import Run
from pipeline.config.settings import fingerprint, to_dict
from pipeline.data.shards.manifest import INPUTS, MANIFEST, read_manifest
from pipeline.experiments.ablation import Ablation, AblationArm, first_unlike, split_phases
from pipeline.experiments.children import Children

SHARDS, LOGS = "shards", "logs"


def shard_directory(ablation: Ablation, part: Run) -> Path:
    """Directory of the shards that a run's phase reads."""
    name = f"{part.data.format}-{part.data.sequence_length}"
    # 8 digits are enough for the few formats of one output
    return ablation.output / SHARDS / f"{name}-{fingerprint(shard_settings(part.data))[:8]}"


def directories(ablation: Ablation, arm: AblationArm) -> list[Path]:
    """The shards that an arm trains on, for `--data`; those of its last phase come last."""
    # not a set: the order of phases counts
    return list(dict.fromkeys(shard_directory(ablation, part) for part in split_phases(arm.run)))


def held_out(ablation: Ablation, arm: AblationArm) -> Path:
    """The shards whose held-out sequences an arm is validated on while it trains."""
    return shard_directory(ablation, arm.run)


def prepare_shards(ablation: Ablation, arm: AblationArm, children: Children) -> None:
    """Prepare the shards of an arm that do not exist yet; other processes wait meanwhile."""
    for part in split_phases(arm.run):
        directory = shard_directory(ablation, part)
        if (directory / MANIFEST).exists():
            continue
        make_directory(directory.parent, "name another --output")
        with one_at_a_time(directory.with_name(f".{directory.name}.lock")) as lock:
            if (directory / MANIFEST).exists():  # by another process, while this one waited
                continue
            print(f"preparing {directory}", flush=True)
            words = (*prepare_command(ablation, part), "--output", directory)
            # the child keeps the lock if this process is killed
            children.run(words, prepare_log(ablation, part), lock)
    check_inputs(ablation)


def prepare_command(ablation: Ablation, part: Run) -> tuple[object, ...]:
    """The command that prepares the shards of a run's phase, without --output."""
    directory = shard_directory(ablation, part)
    make_directory(directory.parent, "name another --output")
    settings = directory.with_name(f".{directory.name}.json")
    write_whole(settings, json.dumps(to_dict(part), indent=1).encode())
    return ("pipeline.prepare", *ablation.inputs, "--recipe", settings)


def prepare_log(ablation: Ablation, part: Run) -> Path:
    """The log of that command."""
    return ablation.output / LOGS / f"{shard_directory(ablation, part).name}.log"


def check_inputs(ablation: Ablation) -> None:
    """Raises DataError if shards were prepared from other text than those of an arm before."""
    every = dict.fromkeys(d for arm in ablation.arms for d in directories(ablation, arm))
    made = [directory for directory in every if (directory / MANIFEST).exists()]
    found = ((each, read_manifest(each).files[INPUTS]["xxh3_64"]) for each in made)
    if unlike := first_unlike(found):
        raise DataError(
            f"{unlike[0]} was prepared from other text than {unlike[1]}; remove it and the runs "
            "that read it, give the same files again, and rerun"
        )


def why_not_scored(ablation: Ablation, arm: AblationArm, judge: AblationArm) -> str:
    """Reason why an arm cannot be scored on another one's held-out rows; empty if it can."""
    mine = read_manifest(held_out(ablation, arm))
    theirs = read_manifest(held_out(ablation, judge))
    whose = "the baseline's" if judge is ablation.baseline else f"{judge.name}'s"
    # a loss per token depends on what the tokens are
    if mine.tokenizer["sha256"] != theirs.tokenizer["sha256"]:
        return f"another tokenizer than {whose}"
    if arm.run.encoder.positions < theirs.sequence_length:
        return f"fewer positions than {whose} sequences have tokens"
    return ""

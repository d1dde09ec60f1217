"""A model of the Hugging Face Hub -> a folder of its weights and tokenizer, fetched once.

    MODELS/ORG--NAME/COMMIT/           one commit, whole; never changed again
    MODELS/ORG--NAME/.COMMIT.part/     files of a fetch that was cut

1. A name without a revision is the commit that was fetched first, without any request: a command
   that runs again, also on a node without a network, has the same weights. `NAME@main` asks.
2. One request resolves a revision to a commit and lists its files with lengths and hashes.
3. The files that we read are fetched, others never: no code, no pickles. Each is compared with the
   list, then the folder gets its name. config.json comes first: a model that we do not train is
   refused before its weights are fetched.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from pipeline.base.command_line import HUB
from pipeline.base.errors import ConfigError, DataError
from pipeline.base.files import bytes_in, make_directory, one_at_a_time, sync_directory, write_whole
from pipeline.released.folder import CONFIG, INDEX, WEIGHTS, check_config
from pipeline.remote.hub import (
    COMMIT,
    MARKER,
    ListedFile,
    Repository,
    download,
    list_files,
)

_NAME = re.compile(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@([A-Za-z0-9][\w./-]*))?", re.A)
_READ = re.compile(
    r"(generator/)?(config\.json|(model|span_boundary|copying)\.safetensors"
    r"|(tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab)\.json"
    r"|vocab\.txt|merges\.txt|spiece\.model|README\.md)|LICENSE[\w.-]*",
    re.ASCII,
)
"""Files that are fetched. Only these are asked for, so no name in a list leaves the folder."""


@dataclass(frozen=True, slots=True)
class HubModel:
    """A fetched commit of a model."""

    folder: Path
    origin: str
    """`hf:ORG/NAME@COMMIT`, which fetches the same again."""


def fetch_model(name: str, models: Path) -> HubModel:
    """The folder of `ORG/NAME` or `ORG/NAME@REVISION`; what is missing is fetched.

    models: the folder of all models. Raises ConfigError for any other name, for a model or
    revision that the Hub does not give to this user, and for one whose weights we do not read;
    DataError if the fetch fails.
    """
    repository = _parse(name)
    place = models / repository.name.replace("/", "--")
    commit = _commit(repository, place)
    return HubModel(place / commit, f"{HUB}{repository.name}@{commit}")


def _commit(repository: Repository, place: Path) -> str:
    """The commit whose folder is in `place` by now."""
    shown, revision = repository.shown, repository.revision
    # 1. Neither of the two returns below makes a request.
    if COMMIT.fullmatch(revision) and _is_whole(place / revision):
        return revision
    kept = _first_fetched(place)
    if kept and not revision:
        _say(
            f"{shown} is commit {kept}, fetched before; {shown}@main fetches the newest one, "
            f"{shown}@COMMIT any other"
        )
        return kept
    bare = f"{HUB}{repository.name}"
    if kept:
        instead = f"{repository.instead}; {bare} without a revision is {kept}, which is here"
        repository = replace(repository, instead=instead)
    commit, listed = list_files(repository)  # 2.
    _check_readable(repository, [file.path for file in listed])
    files = [file for file in listed if _READ.fullmatch(file.path)]
    if revision != commit:
        _say(f"{shown} is commit {commit}; {bare}@{commit} stays at it")
    if not _is_whole(place / commit):
        _fetch(repository, commit, files, place)  # 3.
    return commit


def _parse(name: str) -> Repository:
    found = _NAME.fullmatch(name)
    if not found or ".." in name or "--" in name.partition("@")[0]:  # -- stands for the slash
        raise ConfigError(
            f"{HUB}{name} does not name a model on the Hub; write {HUB}ORG/NAME or "
            f"{HUB}ORG/NAME@REVISION, for example {HUB}FacebookAI/roberta-base"
        )
    return Repository(
        kind="model", name=found[1], revision=found[2] or "", shown=f"{HUB}{name}",
        instead="or give the path of a folder with the model",
        first=f"python -m pipeline.tenfold settings {HUB}{name}",
    )  # fmt: skip


def _check_readable(repository: Repository, paths: list[str]) -> None:
    """Raises ConfigError unless there is a configuration, and weights in one safetensors file."""
    shown = repository.shown
    if CONFIG not in paths:
        raise ConfigError(f"{shown} has no {CONFIG}, so it is not a model of transformers")
    if WEIGHTS in paths:
        return
    if WEIGHTS + INDEX in paths:
        raise ConfigError(
            f"{shown} has its weights in several files ({WEIGHTS}{INDEX}), and we read one "
            f"{WEIGHTS}: save the model with save_pretrained(FOLDER, max_shard_size='1TB') and "
            "give FOLDER"
        )
    pickles = [path for path in paths if path.endswith((".bin", ".pt", ".pth", ".ckpt"))]
    others = f" but {', '.join(sorted(pickles))}, a pickle, which can run code and is never read"
    raise ConfigError(
        f"{shown} has no {WEIGHTS}{others * bool(pickles)}; for many models the Hub has a "
        "conversion as a pull request, see the discussions on its page: use "
        f"{HUB}{repository.name}@refs/pr/NUMBER"
    )


def _is_whole(folder: Path) -> bool:
    return (folder / MARKER).is_file()


def _first_fetched(place: Path) -> str:
    """The commit that was fetched before all others, "" if none was.

    The first rather than the newest: fetching another one leaves earlier commands as they were.
    """
    fetched = {
        folder.name: json.loads((folder / MARKER).read_bytes())["fetched_at"]
        for folder in (place.iterdir() if place.is_dir() else ())
        if COMMIT.fullmatch(folder.name) and _is_whole(folder)
    }
    # Times in ISO format and UTC sort as text.
    return min(fetched, key=lambda commit: (fetched[commit], commit), default="")


def _say(line: str) -> None:
    """Print a line, once for all ranks of a job."""
    if os.environ.get("RANK", "0") == "0":
        print(line, file=sys.stderr, flush=True)


def _fetch(repository: Repository, commit: str, files: Sequence[ListedFile], place: Path) -> None:
    """Have the folder of a commit; if several processes need it, one fetches it."""
    target, folder = place / commit, place / f".{commit}.part"
    make_directory(place)
    with one_at_a_time(place / ".lock"):
        if _is_whole(target):
            return
        if target.exists():
            raise DataError(f"{target} is not a fetched model; remove it")
        make_directory(folder)
        _require_room(repository, files, folder)
        size = sum(file.size for file in files) / 1e6
        _say(f"fetching {repository.shown}, {size:,.1f} MB, to {target}")
        download(repository, commit, [file for file in files if file.path == CONFIG], folder)
        check_config(folder, repository.shown)
        download(repository, commit, files, folder)
        shutil.rmtree(folder / ".cache", ignore_errors=True)  # notes of huggingface_hub
        about = {
            "origin": f"{HUB}{repository.name}@{commit}",
            "fetched_at": datetime.now(timezone.utc).isoformat(),
        }
        write_whole(folder / MARKER, json.dumps(about, indent=1).encode())
        folder.rename(target)
        sync_directory(place)


def _require_room(repository: Repository, files: Sequence[ListedFile], folder: Path) -> None:
    needed = sum(file.size for file in files) - bytes_in(folder)
    room = shutil.disk_usage(folder).free
    if needed > room:
        raise DataError(
            f"{repository.shown} takes {needed / 1e6:,.0f} MB, and {folder.parent} has "
            f"{room / 1e6:,.0f} MB left; free some space, or set TENFOLD_ROOT"
        )

"""`hf:ORG/NAME@REVISION` -> the folder of a model's weights and tokenizer, see `remote.hub`.

The files that we read are fetched, others never: no code, no pickles. config.json comes first: a
model that we do not train is refused before its weights are fetched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pipeline.base.errors import ConfigError
from pipeline.released.choice import HUB
from pipeline.released.folder import CONFIG, WEIGHTS, check_config
from pipeline.remote.hub import Repository, fetch_folder

_NAME = re.compile(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@([A-Za-z0-9][\w./-]*))?", re.A)
_SHARDED = "model.safetensors.index.json"
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

    models: the folder of all models. Raises ConfigError for what is no such name, for a model or
    revision that the Hub does not give to this user, and for one whose weights we do not read;
    DataError if the fetch fails.
    """
    repository = _parsed(name)
    place = models / repository.name.replace("/", "--")
    commit = fetch_folder(
        repository,
        place,
        lambda paths: _readable(repository, paths),
        CONFIG,
        lambda folder: check_config(folder, repository.shown),
    )
    return HubModel(place / commit, f"{HUB}{repository.name}@{commit}")


def _parsed(name: str) -> Repository:
    found = _NAME.fullmatch(name)
    if not found or ".." in name or "--" in name.partition("@")[0]:
        raise ConfigError(
            f"{HUB}{name} does not name a model on the Hub; write {HUB}ORG/NAME or "
            f"{HUB}ORG/NAME@REVISION, for example {HUB}FacebookAI/roberta-base"
        )
    return Repository(
        kind="model", name=found[1], revision=found[2] or "", shown=f"{HUB}{name}",
        instead="or give the path of a folder with the model",
    )  # fmt: skip


def _readable(repository: Repository, paths: list[str]) -> list[str]:
    """The files that are read. Raises ConfigError unless there is a configuration, and weights in
    one safetensors file."""
    shown = repository.shown
    if CONFIG not in paths:
        raise ConfigError(f"{shown} has no {CONFIG}, so it is not a model of transformers")
    if WEIGHTS in paths:
        return [*filter(_READ.fullmatch, paths)]
    if _SHARDED in paths:
        raise ConfigError(
            f"{shown} has its weights in several files ({_SHARDED}), and we read one "
            f"{WEIGHTS}: save the model with save_pretrained(FOLDER, max_shard_size='1TB') and "
            "give FOLDER"
        )
    pickles = [path for path in paths if path.endswith((".bin", ".pt", ".pth", ".ckpt"))]
    others = f" but {', '.join(sorted(pickles))}, a pickle, which can run code and is never read"
    raise ConfigError(
        f"{shown} has no {WEIGHTS}{others * bool(pickles)}; for many models the Hub has a "
        f"conversion as a pull request, see {repository.page}/discussions: use "
        f"{HUB}{repository.name}@refs/pr/NUMBER"
    )

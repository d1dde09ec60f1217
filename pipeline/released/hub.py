"""A model of the Hugging Face Hub -> a folder of its weights and tokenizer, fetched once.

    MODELS/ORG--NAME/COMMIT/           one commit, whole; never changed again
    MODELS/ORG--NAME/.COMMIT.part/     whole files of a fetch that was cut, named by their hashes

1. A name without a revision is the commit that was fetched first, without any request: a command
   that runs again, also on a node without a network, has the same weights. `NAME@main` asks.
2. One request resolves a revision to a commit and lists its files with lengths and hashes.
3. The files that we read are fetched, others never: no code, no pickles. Each is compared with the
   list, then the folder gets its name. config.json comes first: a model that we do not train is
   refused before its weights are fetched.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pipeline.base.errors import ConfigError, DataError, PipelineError
from pipeline.base.files import make_directory, one_at_a_time, why_not_written, write_whole
from pipeline.base.progress import calling_each, counting
from pipeline.base.publish import TakenError, publish_folder, scratch_folder
from pipeline.data.corpora.hub import network_errors
from pipeline.released.choice import HUB
from pipeline.released.folder import CONFIG, WEIGHTS, check_config

MARKER = ".fetched.json"
"""What a folder is and when it was fetched."""
_NAME = re.compile(r"([A-Za-z0-9][\w.-]*)/([A-Za-z0-9][\w.-]*)(?:@([A-Za-z0-9][\w./-]*))?", re.A)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHARDED = "model.safetensors.index.json"
_READ = re.compile(
    r"(generator/)?(config\.json|(model|span_boundary|copying)\.safetensors"
    r"|(tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab)\.json"
    r"|vocab\.txt|merges\.txt|spiece\.model|README\.md)|LICENSE[\w.-]*",
    re.ASCII,
)
"""Files that are fetched. Only these are asked for, so no name in a list leaves the folder."""
_DISK = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO,
)  # fmt: skip
"""Errors of writing; others come from the network."""
_MIRROR = "if HF_ENDPOINT is set, unset it or name another mirror"
_BLOCK_BYTES = 1 << 20
_LOOK_SECONDS = 0.5
"""Between two looks at how much of a file has arrived."""


@dataclass(frozen=True, slots=True)
class HubModel:
    """A fetched commit of a model."""

    folder: Path
    origin: str
    """`hf:ORG/NAME@COMMIT`, which fetches the same again."""


@dataclass(frozen=True, slots=True)
class _Name:
    repository: str
    """ORG/NAME."""
    revision: str
    """A commit, branch, tag or `refs/pr/N`; "" if none is given."""

    def __str__(self) -> str:
        return f"{HUB}{self.repository}" + f"@{self.revision}" * bool(self.revision)


@dataclass(frozen=True, slots=True)
class _ListedFile:
    path: str
    size: int
    """In bytes."""
    hash: str
    """SHA-256 of a large file (64 digits); of others the SHA-1 of a Git blob (40)."""


def fetch_model(name: str, models: Path) -> HubModel:
    """The folder of `ORG/NAME` or `ORG/NAME@REVISION`; what is missing is fetched.

    models: the folder of all models. Raises ConfigError for what is no such name, for a model or
    revision that the Hub does not give to this user, and for one whose weights we do not read;
    DataError if the fetch fails.
    """
    wanted = _parsed(name)
    place = models / wanted.repository.replace("/", "--")
    if _COMMIT.fullmatch(wanted.revision) and _is_whole(place / wanted.revision):
        return _model(wanted, place, wanted.revision)
    if not wanted.revision and (first := _first_fetched(place)):
        _say(
            f"{wanted} is commit {first}, fetched before; {wanted}@main fetches the newest one, "
            f"{wanted}@COMMIT any other"
        )
        return _model(wanted, place, first)
    with _plain_errors(wanted, place):
        commit, files = _listed(wanted)
        if wanted.revision != commit:
            _say(f"{wanted} is commit {commit}; {HUB}{wanted.repository}@{commit} stays at it")
        if not _is_whole(place / commit):
            _fetch(wanted, commit, files, place)
    return _model(wanted, place, commit)


def _parsed(name: str) -> _Name:
    found = _NAME.fullmatch(name)
    if not found or ".." in name or "--" in name.partition("@")[0]:
        raise ConfigError(
            f"{HUB}{name} does not name a model on the Hub; write {HUB}ORG/NAME or "
            f"{HUB}ORG/NAME@REVISION, for example {HUB}FacebookAI/roberta-base"
        )
    return _Name(f"{found[1]}/{found[2]}", found[3] or "")


def _model(name: _Name, place: Path, commit: str) -> HubModel:
    return HubModel(place / commit, f"{HUB}{name.repository}@{commit}")


def _is_whole(folder: Path) -> bool:
    return (folder / MARKER).is_file()


def _first_fetched(place: Path) -> str:
    """The commit that was fetched before all others, "" if none was.

    The first rather than the newest: fetching another one leaves earlier commands as they were.
    """
    fetched = {
        folder.name: json.loads((folder / MARKER).read_bytes())["fetched_at"]
        for folder in (place.iterdir() if place.is_dir() else ())
        if _COMMIT.fullmatch(folder.name) and _is_whole(folder)
    }
    return min(fetched, key=lambda commit: (fetched[commit], commit), default="")


def _say(line: str) -> None:
    """Print a line, once for all ranks of a job."""
    if os.environ.get("RANK", "0") == "0":
        print(line, file=sys.stderr, flush=True)


def _listed(name: _Name) -> tuple[str, list[_ListedFile]]:
    """The commit of a revision, and those of its files that are fetched: the configuration first,
    the weights last."""
    found = _hub(name).model_info(
        name.repository, revision=name.revision or None, files_metadata=True
    )
    entries = {entry.rfilename: entry for entry in found.siblings or ()}
    _check_readable(name, entries)
    files = [_file(name, entry) for path, entry in entries.items() if _READ.fullmatch(path)]
    pinned = name.revision if _COMMIT.fullmatch(name.revision) else found.sha
    if not _COMMIT.fullmatch(found.sha or "") or found.sha != pinned:
        raise DataError(f"{name}: the Hub answers with the commit {found.sha}; {_MIRROR}")
    return found.sha, sorted(files, key=lambda file: (file.path != CONFIG, file.size, file.path))


def _file(name: _Name, entry: Any) -> _ListedFile:
    """A file as it is listed."""
    checksum = entry.lfs.sha256 if entry.lfs else entry.blob_id
    if entry.size is None or not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", checksum or ""):
        raise DataError(
            f"{name}: the Hub states no length or hash of {entry.rfilename}, so damage would not "
            f"be seen; {_MIRROR}"
        )
    return _ListedFile(entry.rfilename, entry.size, checksum)


def _check_readable(name: _Name, paths: dict[str, Any]) -> None:
    """Raises ConfigError unless there is a configuration, and weights in one safetensors file."""
    if CONFIG not in paths:
        raise ConfigError(f"{name} has no {CONFIG}, so it is not a model of transformers")
    if WEIGHTS in paths:
        return
    if _SHARDED in paths:
        raise ConfigError(
            f"{name} has its weights in several files ({_SHARDED}), and we read one "
            f"{WEIGHTS}: save the model with save_pretrained(FOLDER, max_shard_size='1TB') and "
            "give FOLDER"
        )
    pickles = [path for path in paths if path.endswith((".bin", ".pt", ".pth", ".ckpt"))]
    others = f" but {', '.join(sorted(pickles))}, a pickle, which can run code and is never read"
    raise ConfigError(
        f"{name} has no {WEIGHTS}{others * bool(pickles)}; for many models the Hub has a "
        f"conversion as a pull request, see {_page(name)}/discussions: use "
        f"{HUB}{name.repository}@refs/pr/NUMBER"
    )


def _page(name: _Name) -> str:
    return f"{_hub(name).endpoint}/{name.repository}"


def _hub(name: _Name) -> Any:
    """The client of the Hub, or of the mirror that HF_ENDPOINT names."""
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.utils.tqdm import disable_progress_bars
    except ImportError as error:
        raise ConfigError(
            f"{name} needs the package huggingface_hub to fetch it: pip install '.[hub]', or give "
            "the path of a folder with the model"
        ) from error
    # It would log each of its attempts, and draw a bar for each file.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    disable_progress_bars()
    return HfApi(endpoint=os.environ.get("HF_ENDPOINT"))


def _fetch(name: _Name, commit: str, files: Sequence[_ListedFile], place: Path) -> None:
    """Have the folder of a commit; if several processes need it, one fetches it.

    Each process fills a folder of its own, as locks can exclude nobody (see base/publish).
    """
    target, kept = place / commit, place / f".{commit}.part"
    make_directory(kept)
    with one_at_a_time(place / ".lock"):
        if not _is_whole(target):
            with scratch_folder(target) as folder:
                _fill(name, commit, files, folder, kept)
                about = {
                    "origin": f"{HUB}{name.repository}@{commit}",
                    "fetched_at": datetime.now(timezone.utc).isoformat(),
                }
                write_whole(folder / MARKER, json.dumps(about, indent=1).encode())
                try:
                    publish_folder(folder, target)
                except TakenError as error:
                    if not _is_whole(target):
                        raise DataError(f"{target} is not a fetched model; remove it") from error
        shutil.rmtree(kept, ignore_errors=True)


def _fill(name: _Name, commit: str, files: Sequence[_ListedFile], folder: Path, kept: Path) -> None:
    """Have all files in an empty folder; those that have arrived are in `kept`, too."""
    missing = [file for file in files if not _is_taken(file, folder, kept)]
    needed, room = sum(file.size for file in missing), shutil.disk_usage(folder).free
    if needed > room:
        raise DataError(
            f"{name} takes {needed / 1e6:,.0f} MB, and {folder.parent} has {room / 1e6:,.0f} MB "
            "left; free some space, or set TENFOLD_ROOT"
        )
    hub = _hub(name)
    with counting(f"fetching {name}", "bytes", needed) as add, _growth(folder, add):
        for file in missing:
            hub.hf_hub_download(name.repository, file.path, revision=commit, local_dir=folder)
            if not _is_as_listed(folder / file.path, file):
                raise DataError(
                    f"{name}: {file.path} differs from what the Hub lists ({file.size:,} bytes, "
                    f"hash {file.hash}); run the same command again; {_MIRROR}"
                )
            if file.path == CONFIG:
                check_config(folder, str(name))
            with suppress(OSError):  # without hard links the next fetch starts from nothing
                os.link(folder / file.path, kept / file.hash)
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # notes of huggingface_hub


def _is_taken(file: _ListedFile, folder: Path, kept: Path) -> bool:
    """Link a file that an earlier fetch has kept into the folder, if there is one."""
    path = folder / file.path
    path.parent.mkdir(exist_ok=True)
    try:
        os.link(kept / file.hash, path)
    except OSError:
        return False
    if not _is_as_listed(path, file):
        path.unlink()
        (kept / file.hash).unlink(missing_ok=True)
    return path.exists()


def _is_as_listed(path: Path, file: _ListedFile) -> bool:
    """Whether a file is there with the listed length and hash."""
    if not path.is_file() or path.is_symlink() or path.stat().st_size != file.size:
        return False
    if len(file.hash) == 64:
        digest = hashlib.sha256()
    else:
        digest = hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
    with path.open("rb") as content:
        while block := content.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest() == file.hash


@contextmanager
def _growth(folder: Path, add: Callable[[int], None]) -> Iterator[None]:
    """Call `add` with the bytes by which the files of a folder grow.

    Not by a hook of huggingface_hub: its versions have different ones.
    """
    seen = _bytes_in(folder)

    def look() -> None:
        nonlocal seen
        now = _bytes_in(folder)
        add(now - seen)
        seen = now

    try:
        with calling_each(_LOOK_SECONDS, look):
            yield
    finally:
        look()


def _bytes_in(folder: Path) -> int:
    size = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # renamed meanwhile
                size += Path(directory, name).lstat().st_size
    return size


@contextmanager
def _plain_errors(name: _Name, place: Path) -> Iterator[None]:
    """Errors of huggingface_hub and of the disk in the block become one line of ours."""
    try:
        yield
    except PipelineError:  # before the next line, which imports huggingface_hub
        raise
    except network_errors(ValueError) as error:
        raise _explained(name, place, error) from error


def _explained(name: _Name, place: Path, error: Exception) -> PipelineError:
    """What to tell the user."""
    from huggingface_hub import errors

    status = getattr(getattr(error, "response", None), "status_code", 0)
    if isinstance(error, errors.GatedRepoError):
        return ConfigError(
            f"{name} is gated: its owner gives it to users who ask; ask at {_page(name)}, then set "
            "HF_TOKEN to your access token and rerun"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return ConfigError(
            f"the Hub has no model {name.repository} ({status}), or it is private; check the name, "
            "or set HF_TOKEN to an access token that may read it"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return ConfigError(
            f"{name.repository} has no revision {name.revision or 'main'}; {_page(name)}/commits "
            "lists them"
        )
    if status in (401, 403):
        return ConfigError(
            f"the Hub refuses {name} ({status}); set HF_TOKEN to an access token that may read it, "
            "or unset it if it has expired"
        )
    if isinstance(error, OSError) and error.errno in _DISK:
        return DataError(why_not_written(place, error))
    kept = _first_fetched(place)
    instead = (
        f"; {HUB}{name.repository} without a revision is {kept}, which is here" if kept else ""
    )
    return DataError(
        f"{name} cannot be fetched ({error.__cause__ or error}); run the same command again, here "
        "or on a machine with network and the same TENFOLD_ROOT: whole files are kept" + instead
    )

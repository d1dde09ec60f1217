"""One rank's fragments <-> two safetensors files, and an index of their contents.

    weights-00003.safetensors    fp32 weights, tensors "NAME@START"
    optimizer-00003.safetensors  both moments, tensors "NAME@START.exp_avg" and ".exp_avg_sq"
    index-00003.json             both files' sizes and hashes, and an entry for every tensor; sealed
    index.json                   the entries of all ranks, in the order of the ranks

Rank 0 merges the ranks' indices into index.json when it publishes (publish.py) and removes them, so
that a rank that resumes opens one of them.

NAME is a logical parameter's Hugging Face name, START the fragment's first element in it. The
fragments of all ranks make up the whole parameter: `read_range` reads any part of it.

The hashes are those of the bytes in memory, so any later damage on the disk is found.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
import xxhash

from pipeline.base.errors import CheckpointError
from pipeline.base.files import is_plain_name, sync_directory
from pipeline.base.typed_json import as_object, build
from pipeline.training.checkpoints.weight_file import ITEM_BYTES, memory_of, weight_parts
from pipeline.training.optimizer.optimizer import FragmentState

KINDS = ("weight", "exp_avg", "exp_avg_sq")
"""The values stored for every element, each as fp32."""
INDEX = "index.json"
CHUNK_BYTES = 1 << 22
KEPT_FILES = 64
"""Files that a reader keeps open, far below the usual limit of 1,024."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """One file of a checkpoint."""

    file: str
    bytes: int
    xxh3_64: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """One fragment's weights, or one of its moments."""

    name: str
    """Name of the logical parameter."""
    kind: str
    """weight, exp_avg or exp_avg_sq."""
    start: int
    """First element in the flattened logical parameter."""
    numel: int
    file: str
    byte: int
    """Offset in the file."""
    xxh3_64: str


@dataclass(frozen=True, slots=True)
class Index:
    """The files and tensors that one rank wrote, or all of them."""

    files: tuple[StoredFile, ...]
    tensors: tuple[StoredTensor, ...]


def index_name(rank: int) -> str:
    """The file name of a rank's index."""
    return f"index-{rank:05d}.json"


def file_names(rank: int) -> tuple[str, str]:
    """The names of a rank's weights and moments."""
    return f"weights-{rank:05d}.safetensors", f"optimizer-{rank:05d}.safetensors"


def seal(values: Mapping[str, Any]) -> bytes:
    """JSON whose last entry is the hash of the other entries."""
    body = json.dumps(values, indent=1, allow_nan=False)  # NaN is not JSON
    digest = xxhash.xxh3_64_hexdigest(body.encode())
    return json.dumps({**values, "xxh3_64": digest}, indent=1).encode() + b"\n"


def unseal(path: Path) -> dict[str, Any]:
    """The values of a sealed file. Raises CheckpointError if any byte has changed."""
    content = _read(path)
    try:
        values = as_object(content)
        if values.pop("xxh3_64", None) and seal(values) == content:  # white space counts
            return values
    except ValueError:
        pass
    raise CheckpointError(f"{path} is damaged: its hash does not match its content")


def write_synced(path: Path, parts: Iterable[bytes | memoryview]) -> StoredFile:
    """Write a file and sync it to the disk."""
    digest = xxhash.xxh3_64()
    size = 0
    try:
        with path.open("wb") as file:
            for part in parts:
                file.write(part)
                digest.update(part)
                size += len(part)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {error.strerror or error}") from error
    return StoredFile(file=path.name, bytes=size, xxh3_64=digest.hexdigest())


def write_fragments(directory: Path, rank: int, fragments: Iterable[FragmentState]) -> None:
    """Write a rank's three files; the index gets its name last, once all of them are on disk."""
    weights_name, optimizer_name = file_names(rank)
    # The bytes do not depend on the order in which the optimizer lists its fragments.
    parts = sorted(
        (part for part in fragments if part.weight.numel()),
        key=lambda part: (part.name, part.start),
    )
    contents: dict[str, list[tuple[str, FragmentState, str]]] = {
        weights_name: [(f"{part.name}@{part.start}", part, "weight") for part in parts],
        optimizer_name: [
            (f"{part.name}@{part.start}.{kind}", part, kind) for part in parts for kind in KINDS[1:]
        ],
    }
    files, tensors = [], []
    for name, entries in contents.items():
        stored: list[StoredTensor] = []
        files.append(write_synced(directory / name, _safetensors(name, entries, stored)))
        tensors += stored
    unnamed = directory / f".{index_name(rank)}.tmp"
    write_synced(unnamed, [seal(asdict(Index(tuple(files), tuple(tensors))))])
    sync_directory(directory)  # both names are on the disk before the index lists them
    unnamed.rename(directory / index_name(rank))  # the last thing that can fail


def read_index(directory: Path, rank: int) -> Index:
    """A rank's index. Raises CheckpointError if it is missing or damaged."""
    path = directory / index_name(rank)
    return _index(path, unseal(path))


def write_merged(directory: Path, indexes: Iterable[Index]) -> StoredFile:
    """Write index.json of the ranks' indices, in this order."""
    ranks = list(indexes)
    files = [asdict(file) for index in ranks for file in index.files]
    tensors = [asdict(tensor) for index in ranks for tensor in index.tensors]
    content = json.dumps({"files": files, "tensors": tensors}, indent=1, allow_nan=False)
    return write_synced(directory / INDEX, [content.encode() + b"\n"])


def read_merged(directory: Path, stored: StoredFile) -> Index:
    """index.json, of this size and hash. Raises CheckpointError if it is missing or damaged."""
    path = directory / INDEX
    content = _read(path)
    found = xxhash.xxh3_64_hexdigest(content)
    if (len(content), found) != (stored.bytes, stored.xxh3_64):
        raise CheckpointError(
            f"{path} is damaged: {len(content)} bytes of xxh3_64 {found}, not {stored.bytes} of "
            f"{stored.xxh3_64}"
        )
    try:
        return _index(path, as_object(content))
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error


def _index(path: Path, values: Mapping[str, Any]) -> Index:
    """Raises CheckpointError for a path that leaves the checkpoint, which a stranger may have
    made, and for other entries than an index has."""
    try:
        index = build(Index, values)
        for name in {entry.file for part in (index.files, index.tensors) for entry in part}:
            if not is_plain_name(name):
                raise ValueError(f"{name!r} is not the name of a file")
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
    return index


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error


def in_order(
    tensors: Iterable[StoredTensor], shapes: Mapping[str, Sequence[int]]
) -> dict[tuple[str, str], list[StoredTensor]]:
    """(name, kind) -> its fragments by `start`.

    Raises CheckpointError unless they cover every element of every logical parameter exactly once.
    """
    found: dict[tuple[str, str], list[StoredTensor]] = {
        (name, kind): [] for name in shapes for kind in KINDS
    }
    for tensor in tensors:
        if (tensor.name, tensor.kind) not in found:
            raise CheckpointError(f"{tensor.name} is not a logical parameter of this run")
        found[tensor.name, tensor.kind].append(tensor)
    for (name, kind), parts in found.items():
        parts.sort(key=lambda tensor: tensor.start)
        end = 0
        for tensor in parts:
            if tensor.start != end:  # sorted: a gap or an overlap shows at the first mismatch
                times = "twice" if tensor.start < end else "by no rank"
                raise CheckpointError(
                    f"{kind} of {name} from element {min(tensor.start, end)} on was written {times}"
                )
            end += tensor.numel
        if end != math.prod(shapes[name]):
            raise CheckpointError(
                f"{kind} of {name} has {end} elements, its shape is {tuple(shapes[name])}"
            )
    return found


class OpenFiles:
    """The files of a checkpoint that were read last. A rank's share is many fragments of few files,
    and to open a file is what a shared file system is slow at."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: dict[str, BinaryIO] = {}

    def __enter__(self) -> OpenFiles:
        return self

    def __exit__(self, *error: object) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def get(self, name: str) -> BinaryIO:
        """The open file of this name, at any position."""
        file = self._open.pop(name, None) or (self._directory / name).open("rb")
        self._open[name] = file  # last in the dict: the one used longest ago is closed first
        if len(self._open) > KEPT_FILES:
            self._open.pop(next(iter(self._open))).close()
        return file

    def path(self, name: str) -> Path:
        """The file's path, for messages."""
        return self._directory / name


def read_range(
    files: OpenFiles,
    tensors: Sequence[StoredTensor],
    start: int,
    stop: int,
    trusted: set[tuple[str, int]],
) -> torch.Tensor:
    """Elements [start, stop) of one kind of a logical parameter, from its ordered fragments.

    A fragment's hash is checked when any part of it is first read; `trusted` collects (file, byte)
    of the checked ones. Raises CheckpointError, with the file's name, if a fragment is damaged.
    """
    result = torch.empty(stop - start, dtype=torch.float32)
    target = memory_of(result)
    for tensor in tensors:
        first, last = max(start, tensor.start), min(stop, tensor.start + tensor.numel)
        if first < last:
            window = target[(first - start) * ITEM_BYTES : (last - start) * ITEM_BYTES]
            skip = (first - tensor.start) * ITEM_BYTES
            try:
                _read_checked(files.get(tensor.file), tensor, skip, window, trusted)
            except OSError as error:
                path = files.path(tensor.file)
                raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    return result


def check_file(directory: Path, stored: StoredFile, *, content: bool) -> None:
    """Raises CheckpointError unless the file has its size and, with `content`, its hash.

    One call for metadata of the path either way.
    """
    path = directory / stored.file
    try:
        if not content:
            _check_size(path, path.stat().st_size, stored)
            return
        with path.open("rb") as file:
            _check_size(path, os.fstat(file.fileno()).st_size, stored)
            found = _hash(file, stored.bytes)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    if found != stored.xxh3_64:
        raise CheckpointError(f"{path} is damaged: xxh3_64 {found}, not {stored.xxh3_64}")


def _check_size(path: Path, size: int, stored: StoredFile) -> None:
    if size != stored.bytes:
        raise CheckpointError(f"{path} has {size} bytes, not {stored.bytes}")


def divide(
    fragments: Iterable[FragmentState], rank: int, world_size: int
) -> Iterator[FragmentState]:
    """A rank's share of fragments that are the same on all ranks (stage 0): equal ranges."""
    parts = list(fragments)
    total = sum(part.weight.numel() for part in parts)
    # Neighbours compute the same bound, so every element is written once.
    first, last = total * rank // world_size, total * (rank + 1) // world_size
    place = 0
    for part in parts:
        size = part.weight.numel()
        begin, end = max(first - place, 0), min(last - place, size)
        if begin < end:
            cut = (tensor[begin:end] for tensor in (part.weight, part.exp_avg, part.exp_avg_sq))
            yield FragmentState(part.name, part.start + begin, *cut)
        place += size


def _safetensors(
    file: str, entries: Sequence[tuple[str, FragmentState, str]], stored: list[StoredTensor]
) -> Iterator[bytes | memoryview]:
    """The parts of a safetensors file; appends an entry to `stored` for each tensor."""
    parts = weight_parts([(key, getattr(part, kind)) for key, part, kind in entries])
    header = next(parts)
    yield header
    byte = len(header)
    for (_, part, kind), content in zip(entries, parts, strict=True):
        numel = len(content) // ITEM_BYTES
        stored.append(
            StoredTensor(
                name=part.name,
                kind=kind,
                start=part.start,
                numel=numel,
                file=file,
                byte=byte,
                xxh3_64=xxhash.xxh3_64_hexdigest(content),
            )
        )
        yield content
        byte += len(content)


def _read_checked(
    file: BinaryIO,
    tensor: StoredTensor,
    skip: int,
    window: memoryview,
    trusted: set[tuple[str, int]],
) -> None:
    """Fill `window` with a fragment's bytes from `skip` on."""
    if not 0 <= tensor.byte < 1 << 62:  # beyond what a file can hold
        raise CheckpointError(
            f"{file.name} is damaged: {tensor.kind} of {tensor.name} is at byte {tensor.byte}"
        )
    # A whole fragment is hashed in memory; for a part, all of it is read once more, the first time.
    whole = len(window) == tensor.numel * ITEM_BYTES
    found = tensor.xxh3_64
    if not whole and (tensor.file, tensor.byte) not in trusted:
        file.seek(tensor.byte)
        found = _hash(file, tensor.numel * ITEM_BYTES)
    file.seek(tensor.byte + skip)
    count = file.readinto(window)  # type: ignore[attr-defined]
    if whole:
        found = xxhash.xxh3_64_hexdigest(window)
    if count != len(window) or found != tensor.xxh3_64:
        raise CheckpointError(
            f"{file.name} is damaged: {tensor.kind} of {tensor.name} from element {tensor.start} "
            f"on has xxh3_64 {found}, not {tensor.xxh3_64}"
        )
    trusted.add((tensor.file, tensor.byte))


def _hash(file: BinaryIO, size: int) -> str:
    """xxh3_64 of the next `size` bytes."""
    digest = xxhash.xxh3_64()
    while size and (chunk := file.read(min(size, CHUNK_BYTES))):
        digest.update(chunk)
        size -= len(chunk)
    return digest.hexdigest()

"""manifest.json: the description of a directory of shards, checked when it is read.

Layout 2 of a directory:

    rows/train-00000.arrow       rows of a shard; held-out ones in validation-00000.arrow, ...
    mask-K/train-00000.arrow     duplicate K of the masks of the same rows, in the same order
    documents.parquet            one row per document
    tokenizer/                   loads with transformers.AutoTokenizer
    manifest.json                describes all of it; written last, so it marks completion

A shard of 256 MB of text is one piece after the other, each the rows of one split of the text in
record batches of 1,024 rows, the last one shorter. The order of samples depends on the pieces, not
on how many of them share a file.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import xxhash

from pipeline.base.errors import DataError
from pipeline.base.files import MISSING, NOT_A_FILE, is_plain_name, size_of
from pipeline.base.typed_json import as_object, build, require
from pipeline.config.data_settings import DataSettings
from pipeline.config.formats import SEPARATORS

SCHEMA_VERSION = 2
"""Version of the layout on disk; the fingerprint covers that of the columns."""

MANIFEST = "manifest.json"
INPUTS = "inputs.parquet"  # what was read of each input file, in order

TRAIN: Literal["train"] = "train"

VALIDATION: Literal["validation"] = "validation"

_CONTROL = re.compile("[\0-\x1f\x7f-\x9f]")

REWRITING = "rewriting"

_NEEDED: dict[str, dict[str, type]] = {
    "masking": {"scheme": str, "rate": float, "generator": int, "split": list},
    "engine": {"recipe": str, "ids": str, "mismatches": list[str]},
    "tokenizer": {
        "sha256": str, "kind": str, "size": int,
        "bos": int, "pad": int, "eos": int, "unk": int, "mask": int,
    },
    "totals": {"documents": int, "sequences": int, "tokens": int},
    "files": {"documents.parquet": dict, "inputs.parquet": dict},
}  # fmt: skip
"""Entries that every manifest has, by section; more may be there."""
_NEEDED_OF_EACH: dict[str, dict[str, type]] = {
    "corpora": {
        "documents": int, "sequences": int, "validation_sequences": int, "tokens": int,
        "bytes": int, "characters": int, "licence": str, "dropped": dict[str, int],
        "bad": dict[str, int], "cut": dict[str, int], "noted": dict[str, int],
        "packed": dict[str, int], "unknown": dict[str, int],
    },
    "files": {"bytes": int, "xxh3_64": str},
}  # fmt: skip
"""Entries that each item of these sections has."""
_COUNTS = {
    "packed": {"text_tokens": int, "repeated_tokens": int, "dropped_tokens": int},
    "unknown": {"tokens": int, "characters": int},
}
"""Entries that each of these counts of a corpus has."""

WORD_COUNTS = frozenset(("words", "validation_words"))
"""Entries of a corpus that older shards lack."""
SCHEMES = get_args(get_type_hints(DataSettings)["masking"])
LONGEST_ROW = 65_535
"""Positions are stored in 16 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskFile:
    """One duplicate of one shard's masks."""

    file: str
    """Path in the directory, see `mask_file`."""
    predictions: int
    bytes: int
    xxh3_64: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One file of rows and its mask files, duplicate 0 first, all with the same record batches."""

    file: str
    """Path in the directory, see `rows_file`."""
    split: str
    """train or validation."""
    sequences: int
    tokens: int
    """Tokens of all rows, special tokens included."""
    bytes: int
    xxh3_64: str
    masks: tuple[MaskFile, ...]
    pieces: tuple[int, ...] = ()
    """Rows of each piece, in order. Not stored if the shard is one piece."""

    @property
    def piece_rows(self) -> tuple[int, ...]:
        """Rows of each piece, of a single one, too."""
        return self.pieces or (self.sequences,)

    @property
    def name(self) -> str:
        """File name, the same in `rows/` and in each `mask-K/`: train-00000.arrow."""
        return self.file.rpartition("/")[2]

    def files(self) -> tuple[Shard | MaskFile, ...]:
        """The file of rows, then the mask files."""
        return (self, *self.masks)


@dataclass(frozen=True, slots=True)
class _Masking:
    rate: float
    split: tuple[float, float]
    lengths: tuple[float, ...] = ()
    swaps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A complete description of a prepared directory, of layout `SCHEMA_VERSION`."""

    fingerprint: str
    """Hash of everything that decides the bytes of the columns."""
    data: dict[str, Any]
    """The recipe's data section, as prepared."""
    masking: dict[str, Any]
    """Result of `Masking.describe`: scheme, rate, 80/10/10 split, generator version."""
    sequence_length: int
    max_predictions: int
    duplicates: int
    """Masks stored per training row; 0 if the loader draws them."""
    seed: int
    compression: str
    engine: dict[str, Any]
    """Recipe name, and versions of the code that made ids, sentences, rows and masks; REWRITING, by
    corpus, if a user's function or the rules of C4 changed texts, or documents were excluded."""
    tokenizer: dict[str, Any]
    """sha256 of tokenizer.json, kind, size and the five special ids."""
    corpora: dict[str, Any]
    """Per corpus: documents, sequences, tokens, bytes, characters, unknown tokens and characters in
    them, drop reasons, bad records, licence, and the packing counts; `language`, a code, where it
    is known; `words` and `validation_words`, see `words`, which older shards lack."""
    totals: dict[str, int]
    files: dict[str, dict[str, Any]]
    """Bytes and xxh3_64 of every other file, by path."""
    shards: tuple[Shard, ...]
    takedowns: tuple[dict[str, Any], ...] = ()
    """Removals by the takedown of 0.2.0, which left pads in the rows: only read. Not stored when
    empty."""

    def of(self, split: str) -> tuple[Shard, ...]:
        """The shards of one split, in order."""
        return tuple(shard for shard in self.shards if shard.split == split)

    def words(self, split: str = "") -> int | None:
        """Words between white space of the cleaned text of all packed documents, or of a split;
        None if the shards do not say."""
        if not all(about.keys() >= WORD_COUNTS for about in self.corpora.values()):
            return None
        held_out: int = sum(about["validation_words"] for about in self.corpora.values())
        words: int = sum(about["words"] for about in self.corpora.values())
        return {VALIDATION: held_out, TRAIN: words - held_out}.get(split, words)

    def to_json(self) -> bytes:
        """The text of manifest.json."""
        content = {"schema_version": SCHEMA_VERSION} | dataclasses.asdict(self)
        if not self.takedowns:
            del content["takedowns"]
        for shard in content["shards"]:
            if not shard["pieces"]:
                del shard["pieces"]
        return json.dumps(content, indent=1, ensure_ascii=False).encode()


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a finished directory. Raises DataError if it is missing or unusable."""
    return parse_manifest(directory, manifest_content(directory))


def manifest_content(directory: Path) -> bytes:
    """The bytes of the manifest of a finished directory. Raises DataError if it is missing."""
    path = directory / MANIFEST
    size = size_of(path)
    if size == MISSING:
        why = (
            "pipeline.prepare has not finished there" if directory.is_dir() else "no such directory"
        )
        raise DataError(f"{directory} has no {MANIFEST}: {why}; run pipeline.prepare")
    _check_is_file(path, size)
    return path.read_bytes()


def parse_manifest(directory: Path, text: bytes) -> Manifest:
    """The manifest of these bytes; directory: its place, for messages. Raises DataError if it is
    unusable."""
    path = directory / MANIFEST
    try:
        content = as_object(text)
        version = content.pop("schema_version", None)
        if version != SCHEMA_VERSION:
            raise DataError(
                f"{path}: schema version {version}, but this version reads {SCHEMA_VERSION}; use "
                "the version of Tenfold that wrote it"
            )
        _check_values(content, "")
        manifest = build(Manifest, content)
        _check_sections(manifest)
    except ValueError as error:
        raise DataError(
            f"{path} is damaged ({error}); copy it again, or run pipeline.prepare again, as for "
            "shards of versions before 0.2.0"
        ) from error
    return manifest


def _check_sections(manifest: Manifest) -> None:
    """Raise ValueError unless the sections have the entries that readers take for granted."""
    for name, needed in _NEEDED.items():
        require(getattr(manifest, name), needed, name)
    _check_sizes(manifest)
    for name in ("sequences", "tokens"):
        if manifest.totals[name] < 1:
            raise ValueError(f"totals.{name} is {manifest.totals[name]}")
    if manifest.tokenizer["kind"] not in SEPARATORS:
        raise ValueError(f"tokenizer.kind is {manifest.tokenizer['kind']!r}")
    for name in ("bos", "pad", "eos", "unk", "mask"):
        if not 0 <= manifest.tokenizer[name] < manifest.tokenizer["size"]:
            raise ValueError(f"tokenizer.{name} is {manifest.tokenizer[name]}, which is not an id")
    for name, sections in (("corpora", manifest.corpora), ("files", manifest.files)):
        for key, section in sections.items():
            require(section, _NEEDED_OF_EACH[name], f"{name}.{key}")
            if name == "corpora":
                for counts, entries in _COUNTS.items():
                    require(section[counts], entries, f"{name}.{key}.{counts}")
                if section["unknown"]["characters"] and section["characters"] <= 0:
                    raise ValueError(f"{name}.{key} has unknown characters of none")
                if not isinstance(section.get("language", ""), str):
                    raise ValueError(f"{name}.{key}.language is {section['language']!r}")
                require(section, dict.fromkeys(WORD_COUNTS & section.keys(), int), f"{name}.{key}")
    for number, shard in enumerate(manifest.shards):
        if len(shard.masks) != stored_masks(manifest.duplicates, shard.split):
            raise ValueError(f"shards[{number}] has {len(shard.masks)} masks")
        # no path leaves the directory
        if not is_plain_name(shard.name) or shard.file != rows_file(shard.name):
            raise ValueError(f"shards[{number}] is {shard.file!r}, not rows/NAME")
        for duplicate, mask in enumerate(shard.masks):
            if mask.file != (expected := mask_file(shard.name, duplicate)):
                raise ValueError(f"shards[{number}] has masks {mask.file!r}, not {expected!r}")
    for file in manifest.files:
        if not is_plain_name(file.removeprefix("tokenizer/")):
            raise ValueError(f"{file!r} is not NAME or tokenizer/NAME")


def _check_values(value: object, where: str) -> None:
    """Raise ValueError for numbers beyond 64 bits and for text that a terminal would obey."""
    if _CONTROL.search(where) or (isinstance(value, str) and _CONTROL.search(value)):
        raise ValueError(f"{where!r} has control characters: {value!r}")
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            _check_values(item, f"{where}.{key}" if where else str(key))
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:  # JSON has no limit
        raise ValueError(f"{where} is beyond 64 bits")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}, not a number")


def _check_sizes(manifest: Manifest) -> None:
    """Raise ValueError for sizes that no rows or masks have; readers make room for them."""
    names = {field.name for field in dataclasses.fields(_Masking)}
    given = {name: value for name, value in manifest.masking.items() if name in names}
    masking = build(_Masking, given)
    shares = (masking.rate, *masking.split, sum(masking.split), *masking.lengths)
    if not all(0 <= share <= 1.000_001 for share in shares):  # sums of floats may pass 1
        raise ValueError(f"masking has shares {given}, not from 0 to 1")
    if manifest.masking["scheme"] not in SCHEMES:
        raise ValueError(f"masking.scheme is {manifest.masking['scheme']!r}")
    length, most = manifest.sequence_length, manifest.max_predictions
    if not 3 <= length <= LONGEST_ROW or not 0 <= most <= length:  # 3: <s>, a token, </s>
        raise ValueError(f"sequence_length is {length} and max_predictions is {most}")
    for number, shard in enumerate(manifest.shards):
        if not 0 <= 3 * shard.sequences <= shard.tokens <= length * shard.sequences:
            raise ValueError(
                f"shards[{number}] has {shard.sequences} sequences and {shard.tokens} tokens"
            )
        if sum(shard.piece_rows) != shard.sequences or min(shard.pieces, default=1) < 1:
            raise ValueError(f"shards[{number}] has pieces that are not its rows")
        # an id takes at least two bytes, so a reader never makes more room than the file has
        if manifest.compression == "none" and 2 * shard.tokens > shard.bytes:
            raise ValueError(f"shards[{number}] has {shard.tokens} tokens in {shard.bytes} bytes")


def shard_name(split: str, number: int) -> str:
    """The file name of a shard: train-00000.arrow."""
    return f"{split}-{number:05d}.arrow"


def rows_file(name: str) -> str:
    """Path of a shard's rows in the directory."""
    return f"rows/{name}"


def mask_file(name: str, duplicate: int) -> str:
    """Path of one duplicate of a shard's masks in the directory."""
    return f"mask-{duplicate}/{name}"


def stored_masks(duplicates: int, split: str) -> int:
    """Number of mask files per shard; duplicates: of the recipe.

    Validation rows have one even if the loader draws the masks of training rows, so that all
    evaluations use the same masks.
    """
    return max(1, duplicates) if split == VALIDATION else duplicates


def check_size(directory: Path, file: str, size: int, found: int | None = None) -> Path:
    """The path of a shard file. Raises DataError if it is missing or has another size.

    found: `size_of` it if that is known.
    """
    path = directory / file
    actual = size_of(path) if found is None else found
    if actual == MISSING:
        raise DataError(
            f"{path} is missing; copy it again or run pipeline.prepare into a new directory", path
        )
    _check_is_file(path, actual)
    if actual != size:
        raise DataError(
            f"{path} is damaged: {actual:,} bytes, the manifest says {size:,}; copy it again", path
        )
    return path


def check_is_file(path: Path) -> None:
    """Raise DataError if `path` is a pipe or a device: to open one may wait forever."""
    _check_is_file(path, size_of(path))


def _check_is_file(path: Path, size: int) -> None:
    if size == NOT_A_FILE:
        raise DataError(f"{path} is damaged: it is not a plain file; copy it again", path)


def hash_file(path: Path) -> str:
    """xxh3_64 of a file's bytes, 16 hex digits."""
    digest = xxhash.xxh3_64()
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):  # a shard need not fit in memory
            digest.update(chunk)
    return digest.hexdigest()

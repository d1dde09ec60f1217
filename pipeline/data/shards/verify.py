"""Verification of shards against the manifest: hashes, well-formed rows, masks drawn again.

Shards that the takedown of 0.2.0 wrote are only hashed: their masks depend on text that is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.base.errors import DataError
from pipeline.base.progress import tracked
from pipeline.config.data_settings import DataSettings
from pipeline.data.rows.masks import GENERATOR_VERSION, Masking, Masks
from pipeline.data.shards import arrow_files
from pipeline.data.shards.document_index import DocumentIndex, verify_documents
from pipeline.data.shards.manifest import (
    MANIFEST,
    TRAIN,
    VALIDATION,
    Manifest,
    MaskFile,
    Shard,
    check_size,
    hash_file,
    stored_masks,
)
from pipeline.data.shards.token_counts import TOKEN_COUNTS, Counts, count_ids, read_counts
from pipeline.data.shards.well_formed import wrong_rows
from pipeline.data.tokenizers.folders import read_vocabulary, read_word_starts
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.execution.workers import Executor, Stage


def verify(directory: Path, manifest: Manifest, executor: Executor) -> Vocabulary:
    """Hash every file and draw every mask again, on all workers. Returns the vocabulary.

    Raises DataError naming every file that is wrong, in the manifest's order. If one is wrong that
    shards depend on, such as the tokenizer, shards are hashed but not read.
    """
    wrong = _wrong_files(directory, manifest)
    counted = _counted_split(manifest)
    check: Callable[[], Callable[[ShardTask], ShardFindings]] = partial(_start_hashing, directory)
    counts = np.zeros(0, np.uint64)  # shards that are only hashed are not counted
    if not wrong:
        vocabulary = read_tokenizer(directory, manifest)
        counts = np.zeros(vocabulary.size, np.uint64)
        masking = masking_of(directory, manifest, vocabulary)
        about = replace(manifest, shards=())  # each process gets a copy, and each task its shard
        if not manifest.takedowns:
            check = ShardCheck(directory, about, vocabulary, masking, counted).start
    tasks = [ShardTask(number, shard) for number, shard in enumerate(manifest.shards)]
    found: dict[int, list[str]] = {}
    results = executor.results(Stage(None, check), tasks)
    for task, findings in tracked(results, "verifying", "shards", len(tasks)):
        found[task.number] = findings.wrong
        if findings.counts is not None:
            counts += findings.counts
    wrong += [line for task in tasks for line in found[task.number]]
    if counted and not wrong:
        wrong = _wrong_counts(directory, manifest, counts)
    wrong = list(dict.fromkeys(wrong))  # many shards may name the same file
    if len(wrong) > 1:
        raise DataError(f"{directory}: {len(wrong):,} files are wrong:", problems=wrong)
    if wrong:
        raise DataError(wrong[0])
    return vocabulary


@dataclass(frozen=True, slots=True)
class ShardTask:
    """One shard as a unit of work."""

    number: int
    """Index in the manifest."""
    shard: Shard

    @property
    def weight(self) -> int:
        """Bytes of its files."""
        return sum(file.bytes for file in self.shard.files())

    @property
    def name(self) -> str:
        """Its description in logs."""
        return f"shard {self.shard.file}"

    @property
    def marker(self) -> str:
        """Its name among the tasks; it leaves no file."""
        return self.shard.file


@dataclass(frozen=True, slots=True)
class ShardFindings:
    """The result of the verification of a shard."""

    wrong: list[str]
    """An error for each file that is wrong."""
    counts: Counts | None = None
    """[vocabulary] tokens of its rows, if the directory's counts are of its split."""


@dataclass(frozen=True, slots=True)
class ShardCheck:
    """The settings that all shards of a verification share."""

    directory: Path
    manifest: Manifest
    vocabulary: Vocabulary
    masking: Masking
    """Masking of the directory."""
    counted: str
    """The split whose tokens are counted, as `_counted_split` returns it."""

    def start(self) -> Callable[[ShardTask], ShardFindings]:
        """The function that verifies a shard."""
        return partial(self.check, DocumentIndex(self.directory))

    def check(self, index: DocumentIndex, task: ShardTask) -> ShardFindings:
        """Hash the files of a shard; if all are right, read its rows and draw its masks again."""
        shard = task.shard
        if wrong := _wrong_hashes(self.directory, shard.files()):
            return ShardFindings(wrong)
        try:
            ids = self._check_content(index, shard)
        except DataError as error:
            return ShardFindings([str(error)])
        if shard.split != self.counted:
            return ShardFindings([])
        return ShardFindings([], count_ids(ids, self.vocabulary.special))

    def _check_content(self, index: DocumentIndex, shard: Shard) -> npt.NDArray[Any]:
        """The tokens of a shard. Raises DataError if a row, a mask or its documents are wrong."""
        directory, manifest, vocabulary = self.directory, self.manifest, self.vocabulary
        path = directory / shard.file
        table = arrow_files.read_table(path)
        if wrong := wrong_rows(table, manifest, shard, vocabulary):
            raise DataError(f"{path}: {wrong}; run pipeline.prepare again")
        stored = stored_masks(manifest.duplicates, shard.split)
        if len(shard.masks) != stored:
            raise DataError(
                f"{path} has {len(shard.masks)} masks, the manifest says {stored}; run "
                "pipeline.prepare again"
            )
        rows = arrow_files.split_into_pieces(table, shard, path)
        masks = [arrow_files.read_pieces(directory / mask.file, shard) for mask in shard.masks]
        # piece by piece, so that memory does not grow with the shard
        found = [self._check_piece(index, shard, *piece) for piece in zip(rows, *masks)]
        for mask, predictions in zip(shard.masks, map(sum, zip(*found))):
            if mask.predictions != predictions:
                raise DataError(
                    f"{directory / mask.file}: {predictions:,} predictions, the manifest says "
                    f"{mask.predictions:,}; run pipeline.prepare again"
                )
        return arrow_files.ragged(table["input_ids"])[0]

    def _check_piece(
        self, index: DocumentIndex, shard: Shard, rows: pa.Table, *masks: pa.Table
    ) -> list[int]:
        """The predictions of each of a piece's masks. Raises DataError if a mask is not what its
        key draws, or the documents are wrong."""
        ids, offsets = arrow_files.ragged(rows["input_ids"])
        sequences = rows["sequence"].to_numpy()
        documents = index.documents_of(sequences)
        verify_documents(index.path, documents, shard.file, rows)
        drawn = self.masking.draw_duplicates(
            ids, offsets, str(rows["corpus"][0]), sequences, range(len(masks))
        )
        predictions = []
        for mask, table, expected in zip(shard.masks, masks, drawn):
            path = self.directory / mask.file
            found = arrow_files.masks_of(table)
            _verify_masks(path, found, expected)
            predictions.append(expected.predictions)
        return predictions


def read_tokenizer(directory: Path, manifest: Manifest) -> Vocabulary:
    """The tokenizer of the shards.

    Raises DataError if they were made with another one, or if the manifest has other ids than the
    tokenizer: training takes `<mask>` and padding from the manifest.
    """
    vocabulary = read_vocabulary(directory / "tokenizer")
    expected = manifest.tokenizer["sha256"]
    if vocabulary.sha256 != expected:
        raise DataError(
            f"{directory / 'tokenizer'} is not the tokenizer these shards were made with (sha256 "
            f"{vocabulary.sha256[:12]}, the manifest says {expected[:12]}); copy it again"
        )
    for name, value in vocabulary.describe().items():
        if manifest.tokenizer[name] != value:
            raise DataError(
                f"{directory / MANIFEST} is damaged: tokenizer.{name} is "
                f"{manifest.tokenizer[name]!r}, but the tokenizer has {value!r}; copy it again"
            )
    return vocabulary


def masking_of(directory: Path, manifest: Manifest, vocabulary: Vocabulary) -> Masking:
    """The masking that draws a directory's masks, stored or not; vocabulary: the directory's."""
    if manifest.masking["generator"] != GENERATOR_VERSION:
        raise DataError(
            f"masks of {directory} are from generator {manifest.masking['generator']}, but this "
            f"version has {GENERATOR_VERSION}; use the version that made it, or prepare it again"
        )
    counts = None
    if manifest.masking.get("random_ids") == "unigram":
        counts = read_counts(directory, manifest, vocabulary.size)
    # not the vocabulary's: the rule for them may have changed since the masks were drawn
    word_starts = read_word_starts(directory / "tokenizer", vocabulary)
    try:
        return Masking.described(
            manifest.masking, vocabulary.special, word_starts, manifest.seed, counts
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{directory / MANIFEST} is damaged: masking cannot be used ({error}); copy it"
        ) from error


def masking_for(data: DataSettings, prepared: Masking, directory: Path) -> Masking:
    """A directory's masking with other settings; prepared: its own.

    Raises DataError if they need counts of the tokens that it lacks.
    """
    if data.masks.random_ids == "unigram" and prepared.counts is None:
        raise DataError(
            f"{directory} was prepared with data.masks.random_ids=uniform, so its tokens were not "
            "counted; prepare it again with --set data.masks.random_ids=unigram, or train with "
            "--set data.masks.random_ids=uniform"
        )
    law = Masking.of(data, prepared.special, prepared.word_starts, prepared.counts)
    return replace(law, seed=prepared.seed)


def _start_hashing(directory: Path) -> Callable[[ShardTask], ShardFindings]:
    return partial(_hash, directory)


def _hash(directory: Path, task: ShardTask) -> ShardFindings:
    return ShardFindings(_wrong_hashes(directory, task.shard.files()))


def _wrong_files(directory: Path, manifest: Manifest) -> list[str]:
    """An error for each other file that differs from the manifest."""
    return [
        line
        for name, entry in manifest.files.items()
        for line in _wrong_hash(directory, name, entry["bytes"], entry["xxh3_64"])
    ]


def _wrong_hashes(directory: Path, files: Iterable[Shard | MaskFile]) -> list[str]:
    """An error for each of a shard's files that differs from the manifest."""
    return [
        line
        for file in files
        for line in _wrong_hash(directory, file.file, file.bytes, file.xxh3_64)
    ]


def _wrong_hash(directory: Path, name: str, size: int, expected: str) -> list[str]:
    """The error of a file that is missing, or has another size or hash; none if it is right."""
    try:
        path = check_size(directory, name, size)
    except DataError as error:
        # not raised: the other files are to be named in the same run
        return [str(error)]
    try:
        found = hash_file(path)
    except OSError as error:
        return [f"{path} cannot be read: {error.strerror}; copy it again"]
    if found == expected:
        return []
    return [f"{path} is damaged: xxh3_64 {found}, the manifest says {expected}; copy it again"]


def _counted_split(manifest: Manifest) -> str:
    """The split whose tokens the stored counts are of, or "" if there are none to compare."""
    # a takedown took tokens and left the counts, by which the masks were drawn
    if TOKEN_COUNTS not in manifest.files or manifest.takedowns:
        return ""
    return TRAIN if manifest.of(TRAIN) else VALIDATION


def _wrong_counts(directory: Path, manifest: Manifest, counts: Counts) -> list[str]:
    """The error if the stored counts are not those of the rows."""
    if np.array_equal(counts, read_counts(directory, manifest, len(counts))):
        return []
    return [
        f"{directory / TOKEN_COUNTS} does not count the tokens of the rows; run pipeline.prepare "
        "again"
    ]


def _verify_masks(path: Path, found: Masks, expected: Masks) -> None:
    for name, offsets in (
        ("positions", "position_offsets"),
        ("actions", "action_offsets"),
        ("random_ids", "random_offsets"),
    ):
        if not all(
            np.array_equal(getattr(found, column), getattr(expected, column))
            for column in (name, offsets)
        ):
            raise DataError(
                f"{path}: {name} are not what its key draws; run pipeline.prepare again"
            )
    coins, drawn = np.asarray(found.swapped), np.asarray(expected.swapped)
    if expected.swapped is not None and not np.array_equal(coins, drawn):
        raise DataError(f"{path}: swapped is not what its key draws; run pipeline.prepare again")

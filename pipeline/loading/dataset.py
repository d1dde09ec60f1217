"""A prepared directory -> records of where its rows and masks are in memory.

`Dataset` is one split of one directory. A file is opened when a sample in it is requested:

- mapped (`data.reader=mmap`): a shard is mapped once and stays mapped; the page cache does the
  rest.
- read (`data.reader=read`): several threads read whole record batches ahead of their use, and
  decompress them if necessary; newer record batches replace older ones.

Either way the result is a table of addresses for `resolve`; no row passes through Python. Masks
are read from files, as rows are, or (`data.mask_mode=per-epoch`) drawn from the rows in memory:
the same masks that a stored duplicate of that number would hold.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.base.errors import DataError
from pipeline.config.data_settings import DataSettings, most_predictions
from pipeline.data.rows.mask_positions import Memory
from pipeline.data.rows.masks import Masking, corpus_root, stream_keys
from pipeline.data.shards.arrow_files import masks_schema, rows_schema
from pipeline.data.shards.corpus_spans import corpus_spans
from pipeline.data.shards.manifest import (
    MANIFEST,
    TRAIN,
    Manifest,
    Shard,
    read_manifest,
)
from pipeline.data.shards.verify import masking_for, masking_of
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.loading.record_batches import Columns, Layout
from pipeline.loading.resolve import (
    MASK_COLUMNS,
    RECORD,
    ROW_COLUMNS,
    StructArray,
    read_sequences,
    resolve_masks,
    resolve_rows,
)
from pipeline.loading.shard_files import file_sizes, find_damage
from pipeline.loading.staging import StagedPart

IntArray = npt.NDArray[np.int64]

READ_THREADS = 8
"""Concurrent reads of a process; they hide the latency of a network file system."""
KEPT_BLOCKS = 1 << 16
"""Record batches of masks whose addresses are kept; at least two duplicates are kept."""
SAMPLED_BLOCKS = 16
"""Record batches that `some_lengths` reads, a few megabytes in all."""
_NEVER = 1 << 32  # the loader's keys, dataset * cycle + duplicate, stay below 2^63
"""Epochs until drawn masks repeat."""


@dataclass(frozen=True, slots=True)
class Records:
    """The addresses of n rows in memory."""

    fields: StructArray
    """RECORD [n], for `decode.decode`."""
    held: tuple[object, ...]
    """Owners of that memory; it is valid for as long as this object lives."""


class Dataset:
    """One split of one prepared directory: its rows, and the mask duplicates that are requested."""

    def __init__(
        self,
        directory: Path,
        manifest: Manifest,
        shards: Sequence[Shard],
        masking: Masking | None = None,
        has_files: bool = True,
    ) -> None:
        """Use `Dataset.open`, which checks the directory first; masking: draws masks, if none are
        stored; has_files: False for a dataset to plan with, of which no row can be read."""
        self._has_files = has_files
        self.directory = directory
        self.manifest = manifest
        self.masking = masking
        self.shards = tuple(shards)
        pieces = [shard.piece_rows for shard in self.shards]
        self.piece_rows: IntArray = np.array([rows for own in pieces for rows in own], np.int64)
        """Rows of each piece of each shard [pieces], for `Order`."""
        self.id_type = np.dtype(np.uint16 if manifest.tokenizer["size"] <= 1 << 16 else np.uint32)
        self._layout = Layout.of(pieces)
        schema = rows_schema(self.id_type)
        self._rows = Columns(directory, self._files(-1), self._layout, schema, ROW_COLUMNS)
        self._masks: dict[int, Columns] = {}
        self._roots = np.zeros(len(self.shards), np.uint64)
        """Each shard's `corpus_root`; 0 until one of its rows is requested."""
        self.damaged: set[str] = set()
        """Names of the shards that `open` found damaged, with `skip_damaged`."""
        self._excluded = np.zeros(len(self.shards), np.bool_)
        self.part = ""
        """Name of its first shard, if it is one of several corpora of its directory."""
        self.staging: StagedPart | None = None

    def stage(self, staging: StagedPart) -> None:
        """Read copies on the node's own disk from now on, where there are any."""
        self.staging = staging
        for columns in (self._rows, *self._masks.values()):
            columns.copies = staging.copies

    @classmethod
    def open(cls, directory: Path, split: str = TRAIN, skip_damaged: bool = False) -> Dataset:
        """Open a split of a directory that `pipeline.prepare` wrote, in a process without ranks;
        ranks open it with `cluster.shared_shards`.

        Raises DataError if a file is missing or its size differs from the manifest, or if the
        split has no rows. skip_damaged: adds the file's shard to `damaged` instead. A duplicate
        may lack all of its files.
        """
        manifest = read_manifest(directory)
        sizes = file_sizes(directory, manifest.of(split))
        return cls.checked(directory, manifest, split, sizes, skip_damaged)

    @classmethod
    def checked(
        cls,
        directory: Path,
        manifest: Manifest,
        split: str,
        sizes: IntArray,
        skip_damaged: bool = False,
    ) -> Dataset:
        """As `open`; sizes: `file_sizes` of the split."""
        if not manifest.of(split):
            why = "prepare more documents"
            if manifest.data.get("validation_fraction") == 1:
                why = "it was prepared to evaluate on, with data.validation_fraction=1"
            raise DataError(f"{directory} has no {split} rows; {why}")
        masking = None
        if split == TRAIN and manifest.duplicates == 0:  # validation masks are always stored
            masking = masking_of(directory, manifest, read_vocabulary(directory / "tokenizer"))
        dataset = cls(directory, manifest, manifest.of(split), masking)
        for shard, error in find_damage(directory, dataset.shards, sizes):
            if not skip_damaged:
                raise error
            dataset.damaged.add(shard.name)
        return dataset

    def drawing(self, data: DataSettings) -> Dataset:
        """The same rows with the masks of other settings, for a dataset that stores none.

        Shares files and excluded shards with this one. Raises DataError if they need counts of the
        tokens that it lacks.
        """
        assert self.masking is not None
        return self._masked_by(masking_for(data, self.masking, self.directory))

    def at_rate(self, rate: float) -> Dataset:
        """The same rows with masks drawn at another rate by the same scheme and seed.

        Itself if `rate` is 0 or that of its masks. Shares files with this one.
        """
        manifest = self.manifest
        if rate in (0, manifest.masking["rate"]):
            return self
        vocabulary = read_vocabulary(self.directory / "tokenizer")
        law = masking_of(self.directory, manifest, vocabulary)
        return self._masked_by(replace(law, rate=rate))

    def _masked_by(self, law: Masking) -> Dataset:
        """The same rows with masks that are drawn."""
        other, length = copy(self), self.manifest.sequence_length  # shallow: files are shared
        slots = most_predictions(length, law.scheme, law.rate)
        other.masking = law
        other.manifest = replace(self.manifest, masking=law.describe(), max_predictions=slots)
        return other

    def exclude(self, names: Collection[str]) -> None:
        """Stop reading the rows of the shards with these names."""
        self._excluded[:] = [shard.name in names for shard in self.shards]

    @property
    def is_excluded(self) -> bool:
        """True if all of its shards are excluded."""
        return bool(self._excluded.all())

    def read_of(self, rows: IntArray, chosen: IntArray | slice) -> IntArray | slice:
        """The indices into `rows` [n] among `chosen` whose shards are not excluded."""
        if not self._excluded.any():
            return chosen
        places = np.arange(rows.size)[chosen]
        return places[~self._excluded[self._layout.shards_of_rows(rows[places])]]

    def shard_with(self, file: Path | None) -> str:
        """The name of the shard that `file` belongs to, "" if it is not in this dataset."""
        owners = {
            self.directory / part.file: shard.name
            for shard in self.shards
            for part in shard.files()
        }
        return owners.get(file, "") if file else ""

    def by_corpus(self) -> dict[str, Dataset]:
        """A dataset per corpus: itself if it has one, else parts that share its excluded shards."""
        if len(self.manifest.corpora) == 1:
            return dict.fromkeys(self.manifest.corpora, self)
        spans = corpus_spans(self.directory, self.manifest, self.shards)
        return {corpus: self._part(corpus, span) for corpus, span in spans.items()}

    def _part(self, corpus: str, span: slice) -> Dataset:
        """The shards of one corpus, described by a manifest of their own."""
        about, shards = self.manifest.corpora[corpus], self.shards[span]
        totals = {name: about[name] for name in self.manifest.totals}
        manifest = replace(self.manifest, corpora={corpus: about}, totals=totals, shards=shards)
        part = Dataset(self.directory, manifest, shards, self.masking, self._has_files)
        part.part, part.damaged = shards[0].name, self.damaged
        part._excluded, part._roots = self._excluded[span], self._roots[span]  # shared: views
        return part

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.piece_rows.sum())

    @property
    def tokens(self) -> int:
        """Tokens of all rows."""
        return sum(shard.tokens for shard in self.shards)

    @property
    def stored(self) -> int:
        """Number of mask files per shard."""
        return len(self.shards[0].masks)

    @property
    def cycle(self) -> int:
        """Epochs after which masks repeat: epoch e has duplicate (e - 1) mod `cycle`."""
        return self.stored if self.masking is None else _NEVER

    @property
    def mean_predictions(self) -> float:
        """Predicted tokens per row, of all stored masks or of those drawn for the first rows."""
        if self.masking is None:
            total = sum(mask.predictions for shard in self.shards for mask in shard.masks)
            return total / (self.stored * self.rows)
        whole = [shard.name not in self.damaged for shard in self.shards].index(True)
        some = self._layout.rows_of(self._layout.blocks_of(whole)[0])
        with ThreadPoolExecutor(1) as pool:  # read, because compressed files cannot be mapped
            first = self.read_records(np.array(some), 0, pool, 0)
        return float(first.fields["predictions"].mean())

    def some_lengths(self) -> IntArray:
        """Tokens of the rows of a few record batches, spread evenly; damaged ones are skipped.
        Without files, all rows have the mean length."""
        if not self._has_files:
            tokens = sum(shard.tokens for shard in self.shards)
            return np.array([max(1, round(tokens / max(1, self.rows)))])
        spread = np.linspace(0, self._rows.blocks - 1, SAMPLED_BLOCKS).astype(np.int64)
        chosen = np.unique(spread).tolist()
        found: list[IntArray] = []
        for block in chosen:
            try:
                lengths = self._rows.read(block).column("input_ids").value_lengths()
            except DataError:  # reading its rows reports this, and handles it
                if block == chosen[-1] and not found:
                    raise
                continue
            found.append(lengths.to_numpy().astype(np.int64))
        return np.concatenate(found).clip(1, self.manifest.sequence_length)

    def records(self, rows: IntArray, duplicate: int, details: bool = False) -> Records:
        """Rows `rows` [n] with masks `duplicate`, mapped; details: see `resolve_rows`."""
        blocks, inside = self._layout.locate(rows)
        self._rows.map(blocks)
        if self.masking is not None:
            return self._draw(blocks, inside, duplicate, details, self._rows)
        masks = self._masks_of(duplicate)
        masks.map(blocks)
        return Records(self._resolve(blocks, inside, masks, details), (self._rows, masks))

    def request(self, rows: IntArray, duplicate: int, pool: ThreadPoolExecutor) -> None:
        """Start reading the record batches that `read_records` of the same rows needs."""
        blocks, _ = self._layout.locate(rows)
        self._rows.request(blocks, pool)
        if self.masking is None:
            self._masks_of(duplicate).request(blocks, pool)

    def read_records(
        self,
        rows: IntArray,
        duplicate: int,
        pool: ThreadPoolExecutor,
        keep: int,
        details: bool = False,
    ) -> Records:
        """Rows `rows` [n] with masks `duplicate`, read; keep: other record batches to keep."""
        blocks, inside = self._layout.locate(rows)
        held = self._rows.wait(blocks, pool, keep)
        if self.masking is not None:
            return self._draw(blocks, inside, duplicate, details, held)
        masks = self._masks_of(duplicate)
        both = (held, masks.wait(blocks, pool, keep))
        return Records(self._resolve(blocks, inside, masks, details), both)

    def _draw(
        self, blocks: IntArray, inside: IntArray, duplicate: int, details: bool, held: object
    ) -> Records:
        """Rows with masks drawn now; held: owners of the rows' memory."""
        assert self.masking is not None
        fields = self._resolve(blocks, inside, None, details)
        read_sequences(blocks, inside, self._rows.addresses, fields)
        tokens, wide = fields["tokens"].copy(), self.id_type.itemsize == 4
        memory = Memory(fields["ids"].copy(), tokens, wide)
        keys = stream_keys(self._roots_of(blocks), fields["sequence"].view(np.uint64))
        masks = next(self.masking.draw_in_memory(memory, keys, (duplicate,)))
        most = self.manifest.max_predictions
        if (bad := masks.counts > most).any():  # micro-batches have room for `most` of a row
            raise DataError(
                f"{self.directory / MANIFEST} allows {most} predictions in a sequence, but its "
                f"masking draws {masks.counts[bad][0]} in one; copy the directory again"
            )
        for field, column, offsets in (
            ("bitmap", masks.positions, masks.position_offsets),
            ("actions", masks.actions, masks.action_offsets),
            ("random_ids", masks.random_ids, masks.random_offsets),
        ):
            addresses = fields[field]  # a view, filled in place
            addresses[:] = offsets[:-1]
            addresses *= column.itemsize
            addresses += column.ctypes.data
        fields["predictions"] = masks.counts
        if masks.swapped is not None:
            fields["swapped"] = masks.swapped
        return Records(fields, (held, masks))

    def _roots_of(self, blocks: IntArray) -> npt.NDArray[np.uint64]:
        """`corpus_root` of each record batch, which must be addressable."""
        shards = self._layout.shards_of(blocks)
        for block in np.unique(blocks[self._roots[shards] == 0]).tolist():
            name = self._rows.corpus_of(block)
            self._roots[self._layout.shard_of(block)] = corpus_root(self.manifest.seed, name)
        return self._roots[shards]

    def _files(self, duplicate: int) -> list[tuple[str, int]]:
        """Name and size of each shard's mask file, or for duplicate -1 of its file of rows."""
        if duplicate < 0:
            return [(shard.file, shard.bytes) for shard in self.shards]
        return [
            (shard.masks[duplicate].file, shard.masks[duplicate].bytes) for shard in self.shards
        ]

    def _masks_of(self, duplicate: int) -> Columns:
        if duplicate not in self._masks:
            files = self._files(duplicate)
            if not any((self.directory / name).exists() for name, _ in files):
                raise DataError(
                    f"{self.directory} has no masks of duplicate {duplicate} ({files[0][0]}); "
                    f"copy duplicate {duplicate} too"
                )
            # Two duplicates are in use at the end of a pass; many in one step of a small dataset.
            kept = max(2, KEPT_BLOCKS // self._rows.blocks)
            for passed in list(self._masks)[: max(0, len(self._masks) + 1 - kept)]:
                del self._masks[passed]
            schema = masks_schema(self.id_type, "swaps" in self.manifest.masking)
            self._masks[duplicate] = Columns(
                self.directory, files, self._layout, schema, MASK_COLUMNS, self._rows.copies
            )
        return self._masks[duplicate]

    def _resolve(
        self, blocks: IntArray, inside: IntArray, masks: Columns | None, details: bool
    ) -> StructArray:
        """Rows `inside` [n] of record batches `blocks` [n], with the stored `masks` if any."""
        records = np.zeros(len(blocks), RECORD)
        id_bytes, manifest = self.id_type.itemsize, self.manifest
        vocabulary = int(manifest.tokenizer["size"])
        columns = self._rows
        bad = resolve_rows(  # first: masks are checked against a row's tokens
            blocks, inside, columns.addresses, columns.checked, id_bytes, vocabulary,
            manifest.sequence_length, details, records,
        )  # fmt: skip
        if bad < 0 and masks is not None:
            columns = masks
            bad = resolve_masks(
                blocks, inside, columns.addresses, id_bytes, vocabulary, manifest.max_predictions,
                records,
            )  # fmt: skip
        if bad >= 0:
            raise columns.damage(int(blocks[bad]), int(inside[bad]))
        return records


ExcludedShards = tuple[tuple[int, str], ...]
"""Excluded shards: index of the dataset and name of the file of rows, sorted."""

"""token_counts.bin: how often each id occurs in a directory, for random ids by frequency.

The file holds a little-endian uint64 per id of the vocabulary, 0 for special ids. Its size and hash
are in the manifest: as numbers in it, the counts would make it longer than all else it says.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.base.errors import DataError
from pipeline.base.files import write_whole
from pipeline.data.shards.manifest import Manifest, check_size, hash_file

TOKEN_COUNTS = "token_counts.bin"
Counts = npt.NDArray[np.uint64]
"""[vocabulary] occurrences of each id."""


def count_ids(ids: npt.NDArray[np.integer], special: npt.NDArray[np.bool_]) -> Counts:
    """Occurrences of each id among `ids`; special: [vocabulary] ids that are not counted."""
    counts = np.bincount(ids, minlength=len(special)).astype(np.uint64)
    counts[special] = 0
    return counts


def write_counts(directory: Path, counts: Counts) -> None:
    """Write the file of a directory."""
    write_whole(directory / TOKEN_COUNTS, counts.astype("<u8").tobytes())  # the bytes are hashed


def read_counts(directory: Path, manifest: Manifest, size: int) -> Counts:
    """The counts of a directory; size: of its vocabulary.

    Raises DataError if the file is missing, damaged or of another vocabulary.
    """
    entry = manifest.files.get(TOKEN_COUNTS, {"bytes": 8 * size, "xxh3_64": ""})
    path = check_size(directory, TOKEN_COUNTS, entry["bytes"])
    found = hash_file(path)
    if found != entry["xxh3_64"] or entry["bytes"] != 8 * size:
        raise DataError(
            f"{path} is damaged: xxh3_64 {found} of {size:,} ids expected, the manifest says "
            f"{entry['xxh3_64']} of {entry['bytes'] // 8:,}; copy it again"
        )
    return np.frombuffer(path.read_bytes(), "<u8").astype(np.uint64)

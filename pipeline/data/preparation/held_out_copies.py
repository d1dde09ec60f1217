"""Counts held-out documents that are in train, too, as copies that differ in details.

A copy with the same text is held out with its original, but a story that another site published
with a changed line may be in train: then the held-out loss is too low.

1. While a part is packed, a sample of the runs of `RUN_TOKENS` tokens (12 words or so of English)
   of every document is hashed, chosen by the content of the run, so a run is in the sample of each
   document that has it. The tokens are at hand then, so this takes no pass over the documents.
2. The sampled runs of all held-out documents become a table.
3. Each process looks up the runs of some parts of train in it.
4. A held-out document with at least `FEWEST_RUNS` sampled runs is checked: it is a copy if train
   has half of them.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numba
import numpy as np
import numpy.typing as npt

from pipeline.base.files import write_whole
from pipeline.data.selection.minhash import Words, find_runs, run_table
from pipeline.data.text.text_tasks import SplitTask
from pipeline.data.tokenizers.token_ids import Tokens
from pipeline.execution.threads import on_threads
from pipeline.execution.workers import Executor
from pipeline.kernels.bits import GOLDEN, U, mix

RUN_TOKENS = 16
FEWEST_RUNS = 3
"""A held-out document with fewer runs in the sample is not checked."""
LEAST_RARITY = 6
MOST_RUNS = 1 << 26
"""Runs in the sample of a corpus, eight bytes each in the work directory."""
_FILES = 128
"""Files of runs in train that one task reads; each has the runs of a split."""
_TEXT_PER_TOKEN = 4
_KEY_TOKENS = 4  # of a run, which decide whether it is in the sample


@dataclass(frozen=True, slots=True)
class Runs:
    """The sampled runs of documents."""

    hashes: Words
    documents: npt.NDArray[np.int64]
    """[documents + 1] positions in `hashes`."""


def rarity_for(tasks: Iterable[SplitTask]) -> int:
    """Logarithm to base 2 of the runs per sampled one, by the size of the corpora."""
    runs = sum(task.weight for task in tasks) // _TEXT_PER_TOKEN
    return max(LEAST_RARITY, (runs // MOST_RUNS).bit_length())


def sample_runs(tokens: Tokens, rarity: int) -> Runs:
    """One in 2^rarity of the runs of each document."""
    offsets = tokens.document_offsets
    documents = np.zeros(len(offsets), np.int64)
    # twice the expected number; the kernel says how many there are if that was too few
    hashes = np.empty(64 + (len(tokens.ids) >> (rarity - 1)), np.uint64)
    while (count := _sample(tokens.ids, offsets, rarity, hashes, documents)) > len(hashes):
        hashes = np.empty(count, np.uint64)
    return Runs(hashes[:count].copy(), documents)


def runs_file(directory: Path, stem: str, split: str) -> Path:
    """The file of a part's runs of one split."""
    return directory / f"{stem}.{split}.runs.npz"


def write_runs(path: Path, runs: Runs) -> None:
    """Write the file of a part's runs."""
    content = io.BytesIO()
    np.savez(content, hashes=runs.hashes, documents=runs.documents)
    write_whole(path, content.getvalue(), lasting=False)


def read_runs(path: Path) -> Runs:
    """Read the file of a part's runs."""
    with np.load(io.BytesIO(path.read_bytes())) as arrays:  # one read, where each waits
        return Runs(arrays["hashes"], arrays["documents"])


def count_copies(
    held_out: dict[str, list[Path]], train: list[Path], table: Path, executor: Executor
) -> dict[str, dict[str, int]]:
    """Per corpus the held-out documents that were checked, and how many of these are in train.

    held_out: files of runs by corpus; train: those of all corpora; table: a file for the runs of
    held-out documents, which the processes read that look for them.
    """
    checked = {corpus: [*on_threads(read_runs, paths)] for corpus, paths in held_out.items()}
    runs = run_table(  # 2. of all corpora, as a copy may be in another one
        np.concatenate(
            [np.empty(0, np.uint64), *(runs.hashes for part in checked.values() for runs in part)]
        )
    )
    content = io.BytesIO()
    np.save(content, runs)
    write_whole(table, content.getbuffer(), lasting=False)
    groups = (train[first : first + _FILES] for first in range(0, len(train), _FILES))
    in_train = np.zeros(len(runs) + 1, np.bool_)  # the last one is for runs that are not there
    searches = [partial(_find_in_train, table, group) for group in groups]
    for bits in executor.call(searches, is_light=True):
        # 3. a bit per run comes back from each process, not the hashes
        in_train[:-1] |= np.unpackbits(bits, count=len(runs)).view(np.bool_)
    return {corpus: _count(parts, runs, in_train) for corpus, parts in checked.items()}


def _find_in_train(table: Path, train: list[Path]) -> npt.NDArray[np.uint8]:
    """The runs of a stored table that are in these files, a bit each."""
    held_out = np.load(table)
    found = np.zeros(len(held_out) + 1, np.bool_)
    for runs in on_threads(read_runs, train):
        found[find_runs(runs.hashes, held_out)] = True
    return np.packbits(found[:-1])


def _count(parts: list[Runs], table: Words, in_train: npt.NDArray[np.bool_]) -> dict[str, int]:
    checked = copies = 0
    for runs in parts:
        found = np.cumsum(np.append(0, in_train[find_runs(runs.hashes, table)]))
        found, sizes = np.diff(found[runs.documents]), np.diff(runs.documents)
        enough = sizes >= FEWEST_RUNS
        checked += int(enough.sum())
        copies += int((enough & (2 * found >= sizes)).sum())
    return {"checked": checked, "in_train": copies}


@numba.njit(cache=True, nogil=True)
def _sample(ids, offsets, rarity, hashes, documents):  # type: ignore[no-untyped-def]
    """Write as many hashes as there is room for, and their offsets; returns how many there are.

    ids: [tokens]; offsets: int64 [documents + 1]; hashes: uint64; documents: int64, as in `Runs`.
    """
    count = 0
    limit = U(1) << U(64 - rarity)
    for document in range(len(offsets) - 1):
        begin = offsets[document]
        last = offsets[document + 1] - RUN_TOKENS  # where a run can start
        key = U(0)
        for place in range(begin, begin + _KEY_TOKENS - 1 if begin <= last else begin):
            key = (key << U(16)) ^ U(ids[U(place)])
        for first in range(begin, last + 1):
            # four ids of 16 bits fill the key: older ones are shifted out
            key = (key << U(16)) ^ U(ids[U(first + _KEY_TOKENS - 1)])
            if key * GOLDEN < limit:  # one multiplication per token; whole runs are hashed for few
                if count < len(hashes):
                    value = U(0)
                    for token in range(RUN_TOKENS):
                        value = value * GOLDEN + U(ids[U(first + token)]) + U(1)
                    hashes[count] = mix(value) | U(1)  # not 0, the table's empty slot
                count += 1
        documents[document + 1] = count
    return count

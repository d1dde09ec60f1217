"""Evaluation files to the runs of words that no training document may share with them.

A document is contaminated when it has 13 consecutive words of an evaluation text (Brown et al.
2020, app. C: 13-grams of lower-case words without punctuation), and is left out as a whole. GPT-3
cut 200 characters around a hit out of long documents instead, and let pass what more than 10
documents share; we do neither. Texts of fewer than 13 words match nothing.

Texts are every string of a JSON file or of JSON lines (SQuAD and its like), or else the whole file
(GLUE's tables, plain text): runs over two cells or lines exist in no other text, and do no harm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import xxhash

from pipeline.data.cleaning import clean
from pipeline.data.corpora import files_of
from pipeline.data.raw_bytes import BOM, read_blocks, require_regular, sniff_compression
from pipeline.data.shingles import Words, run_table, runs
from pipeline.errors import DataError

RUN_WORDS = 13
"""Brown et al. 2020, app. C."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Runs of words of evaluation files."""

    table: Words
    """Of `shingles.run_table`; empty when no file was given."""
    mark: str
    """Names the runs in fingerprints."""

    @classmethod
    def read(cls, paths: list[str]) -> Evaluation:
        """Of files, directories and globs; DataError for what cannot be read, or has no run."""
        if not paths:
            return cls(np.empty(0, np.uint64), "")
        files = sorted(path for given in paths for _, path in files_of(given))
        found = [np.empty(0, np.uint64)]
        for path in files:
            text = clean([*_texts(path)])
            found.append(np.unique(runs(text.buffer, text.offsets, RUN_WORDS)))
        hashes = np.unique(np.concatenate(found))
        if not len(hashes):
            raise DataError(
                f"--decontaminate {' '.join(paths)}: no text of {RUN_WORDS} words in "
                f"{len(files)} file(s), so nothing can be told by it; give others"
            )
        print(f"evaluation: {len(hashes):,} runs of {RUN_WORDS} words in {len(files)} file(s)")
        return cls(run_table(hashes), xxhash.xxh3_64_hexdigest(hashes.tobytes()))


def _texts(path: Path) -> Iterator[str]:
    require_regular(path)
    size = path.stat().st_size
    blocks = read_blocks(str(path), sniff_compression(str(path)), 0, size)
    content = b"".join(blocks).removeprefix(BOM)
    if content.lstrip()[:1] in (b"{", b"["):
        try:
            yield from _strings(orjson.loads(content))
            return
        except orjson.JSONDecodeError:
            pass
        try:
            for line in content.splitlines():
                if line.strip():
                    yield from _strings(orjson.loads(line))
            return
        except orjson.JSONDecodeError:
            pass
    yield content.decode(errors="replace")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for member in value.values() if isinstance(value, dict) else value:
            yield from _strings(member)

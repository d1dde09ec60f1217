"""Shards of documents that are known by their letter, and a slow reference of a takedown."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from pipeline import prepare
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import read_manifest
from tests.pipeline.preparing import Call, tiny, write_jsonl

LETTERS = "abcdefghijklmnopqrst"


def prepare_letters(
    call: Call, tokenizer: Path, folder: Path, settings: Sequence[str] = (), *extra: object
) -> Path:
    """Shards in `folder`/old of the documents a to t, each with words of its own letter."""
    texts = [
        f"{letter * 3} {letter * 5} {letter}. " * (3 + index % 4)
        for index, letter in enumerate(LETTERS)
    ]
    path = write_jsonl(folder / "letters.jsonl", texts)
    changes = [word for setting in settings for word in ("--set", setting)]
    arguments = ["--corpus", path, "--workers", 1, *changes, *extra]
    call(prepare.main, *arguments, *tiny(tokenizer, folder / "old"))
    return folder / "old"


def id_of(directory: Path, letter: str) -> str:
    """The id of the document of a letter: where its line starts."""
    lines = (directory.parent / "letters.jsonl").read_text().splitlines(keepends=True)
    return f"letters.jsonl@{sum(map(len, lines[: LETTERS.index(letter)]))}"


def letters(directory: Path, row: dict[str, Any]) -> list[str]:
    """[tokens] the letter of the segment that each token of a row is in."""
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer" / "tokenizer.json"))
    starts, ids = row["document_starts"], row["input_ids"]
    found = []
    for start, stop in zip(starts, [*starts[1:], len(ids)]):
        letter = set(tokenizer.decode(ids[start:stop])) & set(LETTERS)
        found += [letter.pop() if len(letter) == 1 else ""] * (stop - start)
        assert not letter, "one document in a segment"
    return found


def predictions(row: dict[str, Any]) -> Iterator[tuple[int, int, int]]:
    """Position, action and random id (0 if none) of each prediction of a mask."""
    randoms = iter(row["random_ids"])
    positions = [
        i for i in range(8 * len(row["positions"])) if row["positions"][i // 8] >> i % 8 & 1
    ]
    for slot, position in enumerate(positions):
        action = row["actions"][slot // 4] >> 2 * (slot % 4) & 3
        yield position, action, next(randoms) if action == 1 else 0


def check(old: Path, new: Path, taken: str) -> int:
    """`new` is `old` without the documents of the letters in `taken`; returns pads."""
    before, after = read_manifest(old), read_manifest(new)
    special = {before.tokenizer[role] for role in ("bos", "eos", "unk", "mask", "pad")}
    pads = 0
    for shard, other in zip(before.shards, after.shards, strict=True):
        rows, now = (
            arrow_files.read_table(place / part.file)
            for place, part in ((old, shard), (new, other))
        )
        assert rows.schema == now.schema
        assert rows.drop(["input_ids"]).equals(now.drop(["input_ids"]))
        owners = [letters(old, row) for row in rows.to_pylist()]
        for row, ids, owner in zip(rows.to_pylist(), now["input_ids"].to_pylist(), owners):
            gone = [
                letter in taken and id not in special for letter, id in zip(owner, row["input_ids"])
            ]
            pads += sum(gone)
            wanted = [after.tokenizer["pad"] if g else id for g, id in zip(gone, row["input_ids"])]
            assert ids == wanted
        assert len(shard.masks) == len(other.masks)
        for mask, masked in zip(shard.masks, other.masks):
            tables = [arrow_files.read_table(p / m.file) for p, m in ((old, mask), (new, masked))]
            found = 0
            for owner, first, second in zip(owners, *(table.to_pylist() for table in tables)):
                kept = [p for p in predictions(first) if owner[p[0]] not in taken]
                assert list(predictions(second)) == kept
                assert first.get("swapped") == second.get("swapped")
                found += len(kept)
            assert found == masked.predictions
    return pads

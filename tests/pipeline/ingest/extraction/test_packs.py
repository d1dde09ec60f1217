"""Folders of small files: a few files are read instead, and the records stay the same."""

import bz2
import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.base.errors import DataError
from pipeline.data.text.documents import DocumentCounts, read_batches
from pipeline.execution.workers import local_executor
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.ingest.documents.read import cut
from pipeline.ingest.documents.records import Record, Rewriting, Source
from pipeline.ingest.documents.sniff import sniff
from pipeline.ingest.documents.where import with_line
from pipeline.ingest.extraction import packs
from pipeline.ingest.extraction.extract import extract
from pipeline.ingest.extraction.packs import (
    group_files,
    identity_of_group,
    make_group,
    members_of,
    ungrouped,
)
from tests.pipeline.ingest.documents.raw_files import columns
from tests.pipeline.ingest.files import bad_of, put, read_all


def write(folder: Path, count: int) -> None:
    """Small files of several formats, of which one has an unusable record."""
    for number in range(count):
        path = folder / f"{number % 3}/{number:04d}"
        text = f"This is text number {number}."
        if number % 5 == 4:
            put(path.with_suffix(".jsonl"), f'{{"text": "{text}"}}\n{{"text": ""}}\n')
        elif number % 5 == 3:
            put(path.with_suffix(".csv"), f"id,text\n{number},{text}\n")
        else:
            put(path.with_suffix(".txt"), f"{text}\n\nAnd more.\n")
    put(folder / "0/0003.csv", b"id,text\n3,\xff\n4,x\n")


def found_in(folder: Path) -> list[Source]:
    return corpus_sources("mine", [str(folder)])[1]


def files_in(folder: Path) -> list[Source]:
    return [*ungrouped(found_in(folder))]


def packed(folder: Path) -> list[Source]:
    """The files of a folder, extracted beside it."""
    return extract(found_in(folder), folder.with_name("out"), local_executor(1))


def counted(sources: list[Source]) -> DocumentCounts:
    counts = DocumentCounts()
    pieces = tuple(piece for source in sources for piece in cut(source, 1 << 20))
    for batch in read_batches(pieces, 0, counts):
        counts.documents += len(batch.ids)
    return counts


def test_records_and_counts_are_those_of_the_files(tmp_path: Path) -> None:
    write(tmp_path / "in", 60)
    sources, found = files_in(tmp_path / "in"), packed(tmp_path / "in")
    assert len(sources) == 60 and len(found) < 4
    assert read_all(*found) == read_all(*sources)
    assert {source.raw_format for source in found} == {"pack"}
    assert [bad.where for bad in bad_of(read_all(*found))] == ["0/0003.csv:1"]
    assert with_line("0/0000.txt@26: invalid UTF-8", found) == "0/0000.txt:3: invalid UTF-8"
    assert packed(tmp_path / "in") == found
    records = (record for record in read_all(found[0]) if isinstance(record, Record))
    names = {Path(record.id.rpartition("@")[0]).name for record in records}
    assert names <= members_of(Path(found[0].path))
    counts = counted(found)
    assert counts == counted(sources)
    assert counts.plain_text["files"] == 36
    # a damaged file is named
    put(tmp_path / "in/0/0000.txt.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\x03damaged")
    with pytest.raises(DataError, match=r"0000\.txt\.gz"):
        packed(tmp_path / "in")


def test_tables_of_several_groups_are_packed(tmp_path: Path) -> None:
    for number in range(packs.FEWEST_FILES * 2):
        table = pa.table({"text": [f"{number} {n}" for n in range(5)] + [None]})
        shape = "parquet" if number % 2 else "file"
        put(tmp_path / f"in/{number}.{shape}", columns(table, shape))
    sources, found = files_in(tmp_path / "in"), packed(tmp_path / "in")
    assert len(found) == 1
    assert len(read_all(*found)) == len(sources) * 6
    assert read_all(*found) == read_all(*sources)


def test_wherever_a_file_changes_or_is_added_the_other_packs_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other packs have the names, and so the Parquet files, that they had."""
    monkeypatch.setattr(packs, "PACK_FILES", 30)
    write(tmp_path, 300)

    def found_packs() -> dict[str, list[str]]:
        """By identity, the files of each pack; of files that stay alone, each for itself."""
        found = found_in(tmp_path)
        groups = [source if source.group else make_group([source], "", "pack") for source in found]
        return {identity_of_group(group, as_found=True): group.paths for group in groups}

    chance = random.Random(0)
    groups = [paths for paths in found_packs().values() if len(paths) > 1]
    assert len(groups) > 4
    texts = [Path(path) for paths in groups for path in paths if path.endswith(".txt")]
    for file in chance.sample(texts, 5):
        before = found_packs()
        file.write_text(f"{file.read_text()} And that.")
        changed = found_packs()
        assert len(before.keys() - changed) == len(changed.keys() - before) == 1
        file.with_suffix(".added.txt").write_text("A new one.")
        after = found_packs()
        lost, new = changed.keys() - after, after.keys() - changed
        assert len(lost) == 1
        # its own pack, in two parts if the new file ends one
        assert sum(len(after[pack]) for pack in new) == len(changed[lost.pop()]) + 1


def test_packs_have_small_files_of_a_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 60)
    files = files_in(tmp_path)
    others = [replace(source, corpus="others") for source in files[30:]]
    made = [source for source in group_files([*files[:30], *others]) if source.group]
    assert {source.corpus for source in made} == {files[0].corpus, "others"}
    for source in made:
        assert {file.corpus for file in source.files} == {source.corpus}
    write(tmp_path / "few", packs.FEWEST_FILES - 1)
    few = files_in(tmp_path / "few")
    assert group_files(few) == found_in(tmp_path / "few") == few
    write(tmp_path / "more", 40)
    assert len(found_in(tmp_path / "more")) < 40
    monkeypatch.setattr(packs, "SMALL_BYTES", 10)
    assert found_in(tmp_path / "more") == files_in(tmp_path / "more")


def test_groups_give_files_as_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what they share, and what is set for the group after that; in their old order."""
    monkeypatch.setattr(packs, "PACK_FILES", 30)
    monkeypatch.setattr(packs, "PAGES_BYTES", 200)
    write(tmp_path, 90)
    for number in range(20):
        put(tmp_path / f"{number % 3}/{number:04d}.html", "<html><body>Hello.</body></html>")
    files = [
        sniff(path, "mine", path.relative_to(tmp_path).as_posix(), plain_text="lines")
        for path in sorted(tmp_path.rglob("*.*"))
    ]
    groups = group_files(files)
    assert len({source.format for source in groups if source.group}) == 2
    assert sum(n for source in groups for _, _, n, _ in source.kinds) == len(files) == 110
    again = [*ungrouped(groups)]
    assert [(file, file.found) for file in again] == [(file, file.found) for file in files]
    for group in (source for source in groups if source.group):
        assert group.paths == [file.path for file in group.files]
        assert identity_of_group(group, as_found=True) == identity_of_group(group, as_found=False)
        changed = replace(group, rewriting=Rewriting("a.py", "tidy"))
        assert {file.rewriting.function for file in changed.files} == {"tidy"}


def test_packs_depend_on_compression(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(packs.FEWEST_FILES):
        put(tmp_path / f"in/{number}.txt.bz2", bz2.compress(b"A text."))
    before = packed(tmp_path / "in")
    monkeypatch.setattr("pipeline.ingest.extraction.extract.BZIP2_VERSION", 99)
    assert packed(tmp_path / "in") != before

"""Names that are no text are skipped wherever folders and archives are walked."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.base.errors import DataError
from pipeline.execution.workers import local_executor
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.ingest.documents.records import Dropped, Record
from pipeline.ingest.extraction.extract import extract
from tests.pipeline.ingest.files import put, read_all, texts_of
from tests.pipeline.ingest.tars import tar

SKIPPED = [
    ".hidden.txt", ".git/a.txt", "_SUCCESS", "_metadata", "_temporary/0/part-0.txt", "b.txt~",
    "b.bak", "b.txt.tmp", "b.txt.part", "b.partial", "b.crdownload", ".b.swp", "c.swp", "#b.txt#",
    "@eaDir/a.txt", "lost+found/a.txt", "__MACOSX/._a.txt", "Thumbs.db", "desktop.ini", "README",
    "readme.md", "README_de.txt", "sub/LICENSE", "LICENSE-MIT", "LICENCE.txt", "metadata.csv",
    "SHA256SUMS", "a.txt.sha256",
]  # fmt: skip
READ = [
    "a.txt", "sub/a.txt", "sub/part-00000", "license_to_kill.txt", "readmeplease.txt",
    "backup.tmp.txt", "copyright-law.txt", "sources/a.txt",
]  # fmt: skip


def content_of(name: str) -> bytes:
    return f"Text of {name}.".encode()


def in_a_folder(path: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        put(path / name, content)
    return path


def in_a_tar(path: Path, files: dict[str, bytes]) -> Path:
    return put(path, tar({f"./{name}": content for name, content in files.items()}))


def in_a_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("make", [in_a_folder, in_a_tar, in_a_zip])
def test_what_is_walked_skips_the_same_names_and_says_how_many(
    make: Callable[[Path, dict[str, bytes]], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And no name that only looks similar."""
    names = [*READ, *SKIPPED]
    path = make(tmp_path / "_in", {name: content_of(name) for name in names})
    sources = corpus_sources("mine", [str(path)])[1]
    found = read_all(*extract(sources, tmp_path / "out", local_executor(1)))
    assert sorted(texts_of(found)) == sorted(content_of(name).decode() for name in READ)
    dropped = [item for item in found if isinstance(item, Dropped)]
    assert len(found) == len(READ) + len(dropped), "none is bad"
    said = capsys.readouterr().out
    if make is in_a_folder:  # a folder counts as one
        assert f" {len(SKIPPED):,} file(s) and folder(s) are skipped" in said
    else:
        assert len(dropped) == len(SKIPPED) and len({item.reason for item in dropped}) == 1


def test_a_file_that_is_named_is_read_whatever_its_name(tmp_path: Path) -> None:
    for name in SKIPPED:
        path = put(tmp_path / name, '{"text": "One."}\n')
        [source] = corpus_sources("mine", [str(path)])[1]
        assert read_all(source) == [Record(f"{path.name}@0", path.name, "One.")], name
    with pytest.raises(DataError, match="no files"):
        corpus_sources("mine", [str(tmp_path)])


def test_entries_that_are_corpora(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Folders and files of these names are no corpora, and no members of a group."""
    for name in ("en/a.jsonl", "sw.jsonl", "_temporary/a.jsonl", "@eaDir/a.jsonl", "Thumbs.db"):
        put(tmp_path / "in" / name)
    sources = corpus_sources("mine", [str(tmp_path / "in")], by_folder=True)[1]
    assert {source.corpus for source in sources} == {"en", "sw"}
    assert " 3 file(s) and folder(s) are skipped" in capsys.readouterr().out
    for name in (
        "wikipedia.jsonl",
        "wikipedia.jsonl~",
        "bookcorpus.jsonl.bak",
        "bookcorpus/a.jsonl",
    ):
        put(tmp_path / "group" / name)
    sources = corpus_sources("16gb", [str(tmp_path / "group")])[1]
    assert [source.name for source in sources] == ["wikipedia.jsonl", "a.jsonl"]

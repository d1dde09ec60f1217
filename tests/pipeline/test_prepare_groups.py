"""Prepared groups have the rows of their members, and too little text is an error."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import MANIFEST, read_manifest
from pipeline.ingest.corpora import groups, sources
from pipeline.ingest.corpora.catalogue import CORPORA, GROUPS
from tests.conftest import Command
from tests.pipeline.preparing import Prepare, tiny, write_jsonl

SAMPLE = sources.SAMPLE_FILES
FOLDERS = ("articles", "books", "news", "web", "stories")
"""Folders of the sample, in the order of the members that they represent."""


def rows(directory: Path) -> list[tuple[str, list[int]]]:
    manifest = read_manifest(directory)
    tables = [arrow_files.read_table(directory / shard.file) for shard in manifest.shards]
    return [
        (str(corpus), ids)
        for table in tables
        for corpus, ids in zip(table["corpus"].to_pylist(), table["input_ids"].to_pylist())
    ]


def test_a_group_has_the_rows_of_its_members(
    prepared: Path, tmp_path: Path, make: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample's five folders under the members' names."""
    members = GROUPS["160gb"].members
    books = replace(CORPORA["bookcorpus"], plain_text="file")  # as the sample reads its own
    monkeypatch.setattr(sources, "CORPORA", CORPORA | {"bookcorpus": books})
    (tmp_path / "in").mkdir()
    for member, folder in zip(members, FOLDERS, strict=True):
        (tmp_path / "in" / member).symlink_to(SAMPLE / folder)
    given = ("--corpus", "160gb", "--input", tmp_path / "in")
    make(*given, "--allow-short", "--dedup", "none")
    names = dict(zip(FOLDERS, members))
    assert rows(tmp_path / "out") == [(names[corpus], ids) for corpus, ids in rows(prepared)]
    ours = json.loads((tmp_path / "out" / MANIFEST).read_bytes())["corpora"]
    theirs = json.loads((prepared / MANIFEST).read_bytes())["corpora"]
    assert list(ours) == list(members)
    for folder, member in names.items():
        assert ours[member] | {"licence": ""} == theirs[folder] | {"licence": ""}


def test_a_group_that_is_too_short_stops_at_once(tmp_path: Path, make: Prepare) -> None:
    books, news = (write_jsonl(tmp_path / f"{name}.jsonl", ["A. B."]) for name in "bn")
    given = (f"wikipedia={news}", f"bookcorpus={books}")
    said = make("--corpus", "16gb", "--input", *given, code=2)
    assert "wikipedia has at most 0.0 MB of 11.4 GB" in said and said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_group_that_turns_out_too_short_is_not_published(
    tmp_path: Path, make: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files were large enough, but their text is not; the work is kept for --allow-short."""
    text = "It was a day. Nothing happened. " * 20
    files = {
        name: write_jsonl(tmp_path / f"{name}.jsonl", [f"{n} {text}" for n in range(50)])
        for name in ("wikipedia", "bookcorpus")
    }
    padded = files["bookcorpus"].read_text().replace('{"text"', f'{{"note": "{text}", "text"')
    files["bookcorpus"].write_text(padded)
    held = len(text) * 50
    small = {name: replace(CORPORA[name], published_bytes=held) for name in files}
    small["bookcorpus"] = replace(CORPORA["bookcorpus"], published_bytes=1.5 * held)
    monkeypatch.setattr(groups, "CORPORA", CORPORA | small)
    group = replace(GROUPS["16gb"], published_bytes=2.5 * held)
    monkeypatch.setattr(groups, "GROUPS", {"16gb": group})
    inputs = [f"{name}={path}" for name, path in files.items()]
    given = ("--corpus", "16gb", "--dedup", "none", "--input", *inputs)
    said = make(*given, code=2)
    assert said.count("\n") == 1, said
    assert said.startswith("error: 16gb has too little text: bookcorpus has 0.0 MB of 0.0 MB, ")
    assert "the group has" in said and "wikipedia" not in said
    assert not (tmp_path / "out" / MANIFEST).exists()
    assert [*(tmp_path / "out" / ".work").glob("part-*.json")]
    assert "prepared 100 documents" in make(*given, "--allow-short")


def test_copies_stay_with_the_first_member(
    tmp_path: Path, make: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default a group's members are compared. Members are given in another order."""
    rng = random.Random(0)
    words = [f"w{number}" for number in range(3000)]
    texts = [" ".join(rng.choices(words, k=120)) for _ in range(60)]
    near = [text.replace(text.split()[60], "another") for text in texts[:5]]
    wikipedia = write_jsonl(tmp_path / "w.jsonl", texts[:30])
    news = write_jsonl(tmp_path / "n.jsonl", [*near, *texts[30:]])
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path / "root"))
    make("--corpus", "mixture", "--input", f"cc-news={news}", f"wikipedia={wikipedia}")
    counts = read_manifest(tmp_path / "out").corpora
    assert list(counts) == ["wikipedia", "cc-news"] and counts["wikipedia"]["dropped"] == {}
    assert counts["cc-news"]["dropped"] == {"near-duplicate of one in wikipedia": 5}
    assert counts["cc-news"]["documents"] == 30


@pytest.mark.slow
@pytest.mark.parametrize("name", GROUPS)
def test_miniatures_of_real_text(
    name: str, real_data: Path, tiny_tokenizer: Path, tmp_path: Path, command: Command
) -> None:
    """Each member from real files, through its real reader."""
    result = command(
        "prepare", "--corpus", name, "--allow-short",
        "--input", *(f"{member}={real_data / member}" for member in GROUPS[name].members),
        *tiny(tiny_tokenizer, tmp_path / "out"), TENFOLD_ROOT=str(tmp_path),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    manifest = read_manifest(tmp_path / "out")
    assert list(manifest.corpora) == list(GROUPS[name].members)
    for corpus in manifest.corpora.values():
        assert corpus["documents"] > 10 and corpus["validation_sequences"] > 0

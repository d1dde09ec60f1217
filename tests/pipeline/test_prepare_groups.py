"""Groups: too little text is an error, and copies stay with the first member."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.data.shards.manifest import MANIFEST, read_manifest
from pipeline.ingest.corpora import groups
from pipeline.ingest.corpora.catalogue import CORPORA, GROUPS
from tests.conftest import Command
from tests.pipeline.preparing import Prepare, tiny, write_jsonl


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

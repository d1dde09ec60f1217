"""The first of several copies is kept, by the order of the corpora, whatever the workers."""

import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.base.errors import DataError
from pipeline.data.preparation.holdout import validation_thresholds
from pipeline.data.selection.decisions import read_kept
from pipeline.data.selection.select import Selection, decide
from pipeline.data.text.documents import DocumentCounts
from pipeline.execution.workers import local_executor
from pipeline.recipes import recipe
from tests.benchmarks.planted import copy_of, document, jaccard
from tests.pipeline.data.selection.conftest import chosen
from tests.pipeline.ingest.tars import tar
from tests.pipeline.preparing import (
    FORKED,
    MPIEXEC,
    SMALL_SPLITS,
    at_once,
    at_once_without_locks,
    contents,
    started,
    tiny,
    wait_until,
    write_jsonl,
)


def corpora(folder: Path, **texts: list[str]) -> None:
    """A directory of JSON lines for each corpus, one document per file."""
    for corpus, its in texts.items():
        (folder / corpus).mkdir()
        for number, text in enumerate(its):
            write_jsonl(folder / corpus / f"{number:03}.jsonl", [text])


def outcome(decided: Selection) -> dict[str, str]:
    """Corpus/id -> drop reason, "" for kept documents, as `read_kept` applies them."""
    decide(decided, local_executor(1))
    found: dict[str, str] = {}
    for task in decided.decided_tasks():
        assert task.decisions is not None
        rows = pq.read_table(task.decisions).to_pylist()
        counts = DocumentCounts()
        batches = [*read_kept(task.pieces, task.decisions, 0, counts)]
        kept = [row["id"] for row in rows if row["dropped"] is None]
        assert [id for batch in batches for id in batch.ids] == kept
        assert counts.dropped == Counter(row["dropped"] for row in rows if row["dropped"])
        taken = counts.taken
        assert taken.keys() == counts.dropped.keys() and sum(taken.values()) == counts.left_out
        found |= {f"{row['corpus']}/{row['id']}": row["dropped"] or "" for row in rows}
    return found


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Two corpora: a copy in each, a near copy, one that differs only in case and punctuation."""
    rng = np.random.default_rng(0)
    one, two, three = (document(rng, 200) for _ in range(3))
    near, other = copy_of(two, 0.9, rng), document(rng, 9)
    first = [" ".join(words) for words in (one, three, one)]
    second = [" ".join(two), " ".join(near), ", ".join(three).upper(), " ".join(other)]
    corpora(tmp_path, first=first, second=second)
    return tmp_path


def test_the_first_document_of_the_first_corpus_is_kept(small: Path) -> None:
    """Clusters name it; without rules no files are written."""
    decided = chosen(small, "first", how="none")
    decide(decided, local_executor(1))
    assert decided.mark == "" and decided.decided_tasks() == decided.tasks
    assert not (small / "documents").exists()
    decided = chosen(small, "first", "second")
    assert outcome(decided) == {
        "first/000.jsonl@0": "", "first/001.jsonl@0": "", "first/002.jsonl@0": "near-duplicate",
        "second/000.jsonl@0": "", "second/001.jsonl@0": "near-duplicate",
        "second/002.jsonl@0": "near-duplicate of one in first", "second/003.jsonl@0": "",
    }  # fmt: skip
    tables = [pq.read_table(task.decisions) for task in decided.decided_tasks()]
    assert pa.concat_tables(tables)["cluster"].to_pylist() == [0, 1, 0, 3, 3, 1, 6]
    other = outcome(chosen(small, "second", "first"))
    assert other["second/002.jsonl@0"] == "" and other["first/000.jsonl@0"] == ""
    assert other["first/001.jsonl@0"] == "near-duplicate of one in second"
    exact = outcome(chosen(small, "first", "second", how="exact"))
    assert {name: reason for name, reason in exact.items() if reason} == {
        "first/002.jsonl@0": "exact copy", "second/002.jsonl@0": "exact copy of one in first",
    }  # fmt: skip


def test_a_filtered_document_does_not_drop_its_copies(tmp_path: Path) -> None:
    """A document dropped for too many words does not drop its shorter copy."""
    words = document(np.random.default_rng(1), 300)
    corpora(tmp_path, news=[" ".join(words), " ".join(words[:290])])
    assert [*outcome(chosen(tmp_path, "news")).values()] == ["", "near-duplicate"]
    bound = chosen(tmp_path, "news", filters=("max-words=295",))
    assert [*outcome(bound).values()] == ["too many words", ""]


def test_decided_once_and_again_for_other_files_or_rules(small: Path) -> None:
    decided = chosen(small, "first", "second", split_bytes=600)
    outcome(decided)
    kept = {path: path.stat().st_mtime_ns for path in (small / "documents").rglob("*.parquet")}
    again = chosen(small, "first", "second", split_bytes=600)
    outcome(again)
    assert again.mark == decided.mark
    write_jsonl(small / "second" / "003.jsonl", ["other words " * 20])
    changed = chosen(small, "first", "second", split_bytes=600)
    assert sum(survey.target.exists() for survey in changed.surveys) == len(changed.surveys) - 1
    outcome(changed)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    others = [chosen(small, "first", "second"), chosen(small, "second", "first"),
              chosen(small, "first"), chosen(small, "first", "second", how="exact")]  # fmt: skip
    assert len({decided.mark, *(other.mark for other in others)}) == 5


def test_documents_that_changed_since_are_an_error(small: Path) -> None:
    """Decisions about other documents must not be applied to these."""
    decided = chosen(small, "first")
    decide(decided, local_executor(1))
    [task] = decided.decided_tasks()
    write_jsonl(small / "first" / "003.jsonl", ["one more"])
    [more] = chosen(small, "first").tasks
    with pytest.raises(DataError, match="does not match the current documents"):
        [*read_kept(more.pieces, task.decisions, 0, DocumentCounts())]


@pytest.mark.usefixtures("quick_workers")
def test_killed_anywhere(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that was interrupted during a survey, or during the join, is done again; two processes
    decide the same."""
    expected = outcome(chosen(small, "first", "second", split_bytes=600))
    files = contents(small / "documents")
    shutil.rmtree(small / "documents")
    decided = chosen(small, "first", "second", split_bytes=600)
    assert len(decided.surveys) > 4

    die = Mock(side_effect=KeyboardInterrupt)
    for place in ("join.write_candidates", "join.write_roots", "select._table",
                  "survey.Surveyor._table"):  # fmt: skip
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(f"pipeline.data.selection.{place}", die)
            decide(decided, local_executor(1))
        assert not decided.directory.exists()
        for survey in decided.surveys[1:]:
            survey.target.unlink(missing_ok=True)
    assert outcome(decided) == expected
    assert contents(small / "documents") == files
    shutil.rmtree(small / "documents")
    decide(decided, local_executor(2))
    assert contents(small / "documents") == files


def test_two_decide_at_once_where_locks_exclude_nobody(
    small: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """Each sorts signatures in files of its own, and the first one's decisions count for both."""
    root = {"TENFOLD_ROOT": str(tmp_path / "root")}
    prepares = [
        ("prepare", "--corpus", "first", "--input", small / "first", "--dedup", "near",
         *tiny(tiny_tokenizer, tmp_path / name), "--workers", 1)
        for name in ("a", "b")
    ]  # fmt: skip
    found = at_once_without_locks(tmp_path / "meeting", *prepares, **root)
    assert [code for code, *_ in found] == [0, 0], found
    assert sum("another process made" in said for _, said, _ in found) == 1
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    places = [path.name for path in (tmp_path / "root/documents/decisions").iterdir()]
    assert len([name for name in places if not name.endswith(".lock")]) == 1


def test_no_copy_of_a_held_out_document_is_trained_on(tmp_path: Path) -> None:
    """In two corpora with different thresholds; without selection there are several."""
    rng = np.random.default_rng(3)
    news = [document(rng, 80) for _ in range(60)]
    web = [copy_of(words, 0.9, rng) for words in news[::2]] + [document(rng, 80) for _ in range(9)]
    corpora(tmp_path, news=[" ".join(w) for w in news], web=[" ".join(w) for w in web])
    data = recipe("roberta_tiny").data

    def leaks(how: str) -> tuple[int, Counter[str]]:
        """Pairs across the split, and how many documents of each corpus are held out."""
        decided = chosen(tmp_path, "news", "web", how=how)
        decide(decided, local_executor(1))
        tasks = decided.decided_tasks()
        thresholds = validation_thresholds(tasks, data)
        sides: tuple[list[str], list[str]] = ([], [])
        held_out: Counter[str] = Counter()
        for task in tasks:
            for batch in read_kept(task.pieces, task.decisions, data.seed, DocumentCounts()):
                texts = batch.buffer.tobytes().decode().split("\0")
                for text, value in zip(texts, batch.hashes):
                    side = int(value < np.uint64(thresholds[task.corpus]))
                    sides[side].append(text)
                    held_out[task.corpus] += side
        return sum(jaccard(one, other) > 0.7 for one in sides[1] for other in sides[0]), held_out

    # a tenth of the kept documents: of 60 and 39 documents, of 60 and 9
    assert leaks("none") == (4, {"news": 6, "web": 3})
    assert leaks("near") == (0, {"news": 6, "web": 1})


def decisions_of(root: Path) -> dict[str, pa.Table]:
    """By file, without metadata: these have the time of the extracted file of each root."""
    folder = root / "documents" / "decisions"
    return {
        path.relative_to(folder).as_posix(): pq.read_table(path)
        for path in folder.rglob("*.parquet")
    }


def test_same_decisions_and_shards_from_ranks_and_parts(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """With all rules at once, a function of the user's, and one interruption."""
    rng = np.random.default_rng(4)
    texts = [" ".join(document(rng, int(rng.integers(5, 120)))) for _ in range(240)]
    texts += [" ".join(copy_of(text.split(), 0.9, rng)) for text in texts[::4]]
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(4):
        write_jsonl(folder / f"{number}.jsonl", texts[number::5])
    # an archive, which is extracted first
    pages = {f"{number}.txt": text.encode() for number, text in enumerate(texts[4::5])}
    (folder / "4.tar").write_bytes(tar(pages))
    (tmp_path / "dev.tsv").write_text(f"1\t{texts[17]}\n")
    outputs: dict[str, Path] = {}
    surveys = tmp_path / "one" / "documents" / "surveys"
    (tmp_path / "tidy.py").write_text(
        "from pipeline.data.text.document_map import Drop\n"
        "def tidy(document):\n"
        "    return Drop('dull') if len(document.text) % 6 == 1 else document\n"
    )
    asked = ["--dedup", "near", "--decontaminate", tmp_path / "dev.tsv", "--set",
             "data.duplicates=1", "--map", f"{tmp_path / 'tidy.py'}:tidy", "--most-words", "2.5e3",
             "--filter", "min-words=10", "news=max-words=110"]  # fmt: skip
    for name, launcher, more in (
        ("one", (sys.executable, SMALL_SPLITS), ["--workers", 1]),
        ("ranks", (MPIEXEC, "-n", 2, *FORKED, SMALL_SPLITS), []),
        ("parts", (sys.executable, SMALL_SPLITS), ["--workers", 1]),
    ):
        outputs[name] = tmp_path / name / "out"
        root = {"TENFOLD_ROOT": str(tmp_path / name)}
        command = [*launcher, "--corpus", "news", "--input", folder, *asked, *more,
                   *tiny(tiny_tokenizer, outputs[name])]  # fmt: skip
        if name == "one":
            with started(*command, **root) as killed:
                wait_until(lambda: len([*surveys.glob("*.parquet")]) >= 3, killed)
                killed.kill()
        parts = [["--part", part] for part in ("1/2", "2/2")] if name == "parts" else [[]]
        found = at_once(*[[*command, *part] for part in parts], **root)
        assert not any(code for code, *_ in found), found
    for name in ("ranks", "parts"):
        assert contents(outputs[name]) == contents(outputs["one"])
        one, other = (decisions_of(tmp_path / root) for root in ("one", name))
        assert one == other and len(one) > 4
    [extracted] = (tmp_path / "one" / "documents").glob("*.parquet")
    assert extracted.name.startswith("4.tar-"), "evaluation files are read as they are"
    manifest = json.loads((outputs["one"] / "manifest.json").read_bytes())
    about = manifest["corpora"]["news"]
    dropped = about["dropped"]
    assert dropped.keys() == {
        "near-duplicate", "contaminated", "too few words", "too many words", "map: dull",
        "over the budget of words",
    }  # fmt: skip
    assert 2_500 - 110 <= about["words"] <= 2_500  # but for one document
    assert all(len(ids) == min(3, dropped[why]) for why, ids in about["examples"].items())
    assert manifest["totals"]["documents"] + sum(dropped.values()) == len(texts)
    assert "news: dropped" in "".join(out for _, out, _ in found)
    size = sum(len(text) for text in texts)
    assert about["bytes"] + about["left_out_bytes"] == size and about["left_out_bytes"] > 0

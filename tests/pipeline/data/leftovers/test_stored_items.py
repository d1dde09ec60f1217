"""Only what surely no shards need is listed, and goes unless it is used, linked or locked."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.base.files import open_lock, try_lock
from pipeline.data.leftovers.made_shards import read_made_shards
from pipeline.data.leftovers.stored_items import StoredItem, find_items, remove_item
from pipeline.data.selection.decisions import spans_metadata
from pipeline.data.selection.signature_store import INDEX, SIGNATURES
from pipeline.execution.ledger import lock_of
from pipeline.execution.work_directory import WORK
from pipeline.ingest.documents.parquet import extracted_hash
from pipeline.ingest.documents.records import ReadSpan
from pipeline.ingest.documents.unchanged import content_file, mark_used
from tests.pipeline.data.leftovers.stored import age, extracted_dump, write_shards
from tests.pipeline.ingest.files import put


def found(root: Path) -> dict[str, str]:
    """Why each item is kept, by path below the root."""
    items = find_items(root, read_made_shards(root, []))
    return {item.path.relative_to(root).as_posix(): item.kept for item in items}


@pytest.fixture
def dump(root: Path) -> Path:
    return extracted_dump(root)


def only(root: Path) -> StoredItem:
    [item] = find_items(root, read_made_shards(root, []))
    return item


def test_an_extracted_file_that_no_shards_read(root: Path, dump: Path) -> None:
    """It goes with what is kept of it, and not while it is used, linked or locked."""
    item = only(root)
    assert (item.path, item.kept, item.lock) == (dump, "", lock_of(dump))
    assert item.what == f"extracted; again from {root.parent / 'dump.xml'} (0.0 MB)"
    assert item.size == dump.stat().st_size + content_file(dump).stat().st_size
    assert remove_item(replace(item, kept="a reason"), root) == "a reason"
    with open_lock(item.lock) as lock:
        assert try_lock(lock)
        assert remove_item(item, root) == "another process uses it"
    mark_used(dump)
    assert remove_item(item, root) == "it was used meanwhile"
    age(root)
    mine, outside = root.parent / "mine.parquet", f"it is a link, or outside {root}"
    dump.rename(mine)
    dump.symlink_to(mine)
    assert remove_item(item, root) == outside
    assert remove_item(replace(item, path=mine, more=()), root) == outside
    assert mine.exists()
    mine.rename(dump)
    age(root)
    assert remove_item(only(root), root) == ""
    assert not [*(root / "documents").iterdir()] and (root.parent / "dump.xml").exists()


def _published(dump: Path) -> None:
    about, raw = content_file(dump), dump.parents[2] / "dump.xml"
    about.write_text(about.read_text().replace(raw.name, ".dump.xml.0123.copy"))
    raw.unlink()
    age(dump.parent)


def _hold(dump: Path) -> object:
    lock = open_lock(lock_of(dump.with_name("other.parquet")))
    assert try_lock(lock)
    return lock


KEPT: dict[str, tuple[Callable[[Path], object], str]] = {
    "read": (lambda dump: [write_shards(dump.parents[1] / "shards" / x, dump) for x in "abc"],
             "made of it: ROOT/shards/a, ROOT/shards/b and 1 more"),
    "unfinished shards": (lambda dump: (dump.parents[1] / "shards/x" / WORK).mkdir(parents=True),
                          "the unfinished shards in ROOT/shards/x may need it"),
    "at work": (_hold, "another process is at work in ROOT/documents"),
    "used": (mark_used, "used in the last day, maybe by a command that still runs"),
    "raw file gone": (lambda dump: (dump.parents[2] / "dump.xml").unlink(),
                      "its raw file is not at TMP/dump.xml, so it may be the only copy"),
    "unknown": (lambda dump: content_file(dump).unlink(),
                "its raw file is unknown, so it may be the only copy"),
    "published": (_published, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", KEPT)
def test_why_an_extracted_file_is_kept(case: str, root: Path, dump: Path) -> None:
    change, expected = KEPT[case]
    held = change(dump)
    expected = expected.replace("ROOT", str(root)).replace("TMP", str(root.parent))
    assert found(root)[dump.relative_to(root).as_posix()] == expected
    del held  # a lock


def test_everything_else(root: Path, dump: Path) -> None:
    documents, downloads = root / "documents", root / "downloads"
    write_shards(root / "shards" / "a", dump)
    (root / "shards" / "a" / WORK).mkdir()
    mark = extracted_hash(str(dump))
    for name, hash in (("surveys/mine", mark), ("surveys/other", "0"), ("decisions/x/0", "0")):
        path = documents / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        spans = [ReadSpan("c", "dump.xml", 0, 0, hash)]
        pq.write_table(pa.table({"a": [1]}).replace_schema_metadata(spans_metadata(spans)), path)
    pq.write_table(pa.table({"text": ["mine"]}), documents / "mine.parquet")
    (documents / "link.parquet").symlink_to(dump)
    raw = "raw text; remove it yourself if you no longer need it"
    made = f"made of it: {root / 'shards/a'}"
    written = {
        "documents/.dump.xml-1.0-5.parquet": "", "documents/.dump.xml-1.parquet.9.tmp": "",
        "documents/.gone-1.content.json": "", "documents/.0123.files": "",
        "documents/frames/a.gz-1.parquet": "", "documents/frames/.b.gz-1.0-5.parquet": "",
        "downloads/crawl/.a.gz.0123.part": "", "downloads/mine.txt": raw,
        "downloads/crawl/.list.json": "later runs find the same files by it",
    }  # fmt: skip
    for path in (
        *(root / name for name in written),
        documents / "frames/.a.gz-1.content.json", downloads / "crawl" / "b.gz",
    ):  # fmt: skip
        put(path, "x")
    age(root)
    assert found(root) == written | {
        f"documents/{dump.name}": made, "documents/surveys/mine.parquet": made,
        "documents/mine.parquet": "no command of this version extracted it",
        "documents/surveys/other.parquet": "", "documents/decisions/x": "",
        "downloads/crawl": raw, "shards/a/.work": "",
    }  # fmt: skip


def test_signatures_are_kept_while_their_shards_are_there(root: Path) -> None:
    for name in ("april", "may", "june", "unfinished"):
        put(root / SIGNATURES / name / INDEX, "x")
    (root / SIGNATURES / ".april.lock").touch()
    april = write_shards(root / "shards" / "april")
    new = write_shards(root / "shards" / "new", parent="may")
    age(root)
    assert found(root) == {
        "signatures/april": f"of {april}", "signatures/may": f"of {new}",
        "signatures/june": "", "signatures/unfinished": "",
    }  # fmt: skip
    june = next(item for item in find_items(root, read_made_shards(root, [])) if not item.kept)
    with open_lock(root / SIGNATURES / "june" / ".000000.lock") as lock:
        assert try_lock(lock)
        working = f"another process is at work in {root / SIGNATURES}"
        assert found(root)["signatures/june"] == working
    age(root)
    assert june.what == "signatures for --against"
    assert remove_item(june, root) == "" and not june.path.exists()


def test_a_linked_folder_is_left_alone(root: Path, dump: Path) -> None:
    dump.parent.rename(root.parent / "elsewhere")
    dump.parent.symlink_to(root.parent / "elsewhere")
    assert found(root) == {"documents": "it is a link"}


def test_a_work_folder_goes(tmp_path: Path) -> None:
    work = write_shards(tmp_path / "shards" / "a") / WORK
    put(work / "parts" / "0", "x")
    (work / "lock").touch()
    with open_lock(work / "lock") as lock:
        assert try_lock(lock)
        assert remove_item(only(tmp_path), tmp_path) == "another process uses it"
    assert remove_item(only(tmp_path), tmp_path) == ""
    left = {path.name for path in work.parent.iterdir()}
    assert left == {"inputs.parquet", "manifest.json"}

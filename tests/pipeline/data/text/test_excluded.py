"""`prepare --exclude` drops documents by id or URL before anything else reads them."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from pipeline.data.shards.manifest import REWRITING, read_manifest
from pipeline.data.text import giants
from pipeline.data.text.documents import DocumentCounts, read_batches
from pipeline.data.text.excluded import find_excluded
from pipeline.ingest.documents.records import Piece, Rewriting
from pipeline.ingest.documents.sniff import sniff
from tests.pipeline.preparing import Prepare

RECORDS = [
    {"text": f"Text {n} is about {n * n}. It ends here.", "url": f"https://paper.org/{n}"}
    for n in range(60)
]


def write(folder: Path) -> tuple[Path, Path]:
    """A corpus, and a list of three of its documents and one that it lacks."""
    lines = [json.dumps(record) + "\n" for record in RECORDS]
    (folder / "in.jsonl").write_text("".join(lines))
    names = ["https://paper.org/3", f"in.jsonl@{sum(map(len, lines[:7]))}"]
    names += ["", "  https://paper.org/9  ", "https://paper.org/99"]
    (folder / "ids.txt").write_bytes("\r\n".join(names).encode())
    return folder / "in.jsonl", folder / "ids.txt"


def test_documents_are_excluded_by_id_and_by_url(tmp_path: Path, make: Prepare) -> None:
    """With copies dropped too; another list gives other shards."""
    corpus, listed = write(tmp_path)
    (tmp_path / "tidy.py").write_text(
        "def tidy(document):\n    assert not document.origin.endswith('/3')\n    return document\n"
    )
    given = ("--corpus", corpus, "--dedup", "exact", "--map", f"{tmp_path / 'tidy.py'}:tidy")
    out = make(*given, "--exclude", listed)
    assert "in: dropped 3 excluded\n" in out and "in: excluded, such as in.jsonl@" in out
    assert "names 4 documents, 3 were dropped" in out
    left = pq.read_table(tmp_path / "out" / "documents.parquet")["origin"].to_pylist()
    wanted = {record["url"] for n, record in enumerate(RECORDS) if n not in (3, 7, 9)}
    assert set(left) == wanted and len(left) == 57
    manifest = read_manifest(tmp_path / "out")
    assert manifest.corpora["in"]["dropped"] == {"excluded": 3}
    assert "excluded" in manifest.engine[REWRITING]["in"]
    make(*given, "--exclude", listed)
    listed.write_text("https://paper.org/4\n")
    assert "was made from another" in make(*given, "--exclude", listed, code=2)


def test_a_part_of_a_giant_has_an_id_of_its_own(tmp_path: Path) -> None:
    path, listed = tmp_path / "in.jsonl", tmp_path / "ids.txt"
    path.write_text(json.dumps({"text": "x" * (2 * giants.RUN_CHARACTERS) + " end."}) + "\n")
    for name, kept in (("in.jsonl@0:0", 2), ("in.jsonl@0", 0), ("in.jsonl@1", 3)):
        listed.write_text(name)
        source = replace(
            sniff(str(path), corpus="news", name=path.name),
            rewriting=find_excluded(Rewriting(), listed),
        )
        counts = DocumentCounts()
        batches = read_batches((Piece(source, 0, source.size, source.size),), 0, counts)
        assert sum(len(batch.ids) for batch in batches) == kept
        assert counts.dropped == ({"excluded": 1} if kept < 3 else {})


def test_lists_that_cannot_be_read(tmp_path: Path, make: Prepare) -> None:
    corpus, listed = write(tmp_path)
    for content, said in ((b"\n \n", "is empty"), (b"a\n\xff\n", "ids.txt:2 is not UTF-8")):
        listed.write_bytes(content)
        error = make("--corpus", corpus, "--exclude", listed, code=2)
        assert said in error and error.count("\n") == 1
    for path in (tmp_path, tmp_path / "nothing.txt", Path("/dev/zero")):
        error = make("--corpus", corpus, "--exclude", path, code=2)
        assert f"--exclude {path}: no such file" in error

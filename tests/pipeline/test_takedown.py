"""Only the tokens and predictions of the documents are gone, in every format."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline import inspect, takedown
from pipeline.data.shards.manifest import read_manifest
from tests.pipeline.data.letters import LETTERS, check, id_of, prepare_letters
from tests.pipeline.preparing import FORKED, MPIEXEC, Call, contents, finish

FORMATS = {
    "full_sentences": ["data.masking=whole_word"],
    "single_segment": [
        "data.format=single_segment", "data.masking=span", "data.duplicates=0",
        "data.mask_mode=per-epoch",
    ],
    "next": ["data.format=segment_pair", "data.segments.label=next", "data.segments.draws=3"],
    "order": ["data.format=segment_pair", "data.segments.label=order", "data.masking=ngram"],
}  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
def test_only_the_text_of_the_documents_is_gone(
    format: str, call: Call, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    packed = ("--compression", "zstd" if format == "order" else "none")
    old = prepare_letters(call, tiny_tokenizer, tmp_path, FORMATS[format], *packed)
    held_out = pq.read_table(old / "documents.parquet")["first_sequence"].to_numpy() >> 32 & 1
    names = pq.read_table(old / "documents.parquet")["id"].to_pylist()
    by_id = {id_of(old, letter): letter for letter in LETTERS}
    taken = {by_id[names[list(held_out).index(1)]], *"bcm"}
    new = old.parent / "new"
    listed = old.parent / "ids.txt"
    listed.write_text("\n".join(id_of(old, letter) for letter in sorted(taken)[1:]) + "\n")
    given = ("--data", old, "--documents", id_of(old, min(taken)), listed)
    out = call(takedown.main, *given, "--output", new, "--workers", 1)
    pads = check(old, new, "".join(taken))
    assert f"took down 4 documents, {pads:,} tokens" in out
    shown = call(inspect.main, new, "--verify")
    parent = read_manifest(old).fingerprint
    assert f"taken down from {parent}: 4 documents, {pads:,} tokens" in shown
    documents = pq.read_table(new / "documents.parquet").to_pylist()
    marked = {row["id"] for row in documents if row["taken_down"]}
    assert marked == {id_of(old, letter) for letter in taken}
    assert all(bool(row["origin"]) != row["taken_down"] for row in documents)


@pytest.mark.usefixtures("quick_workers")
def test_workers_and_ranks_give_the_bytes_of_one_process(
    prepared: Path, tmp_path: Path, call: Call
) -> None:
    ids = pq.read_table(prepared / "documents.parquet")["id"].to_pylist()[::40]
    given = ("--data", prepared, "--documents", *ids, "--output")
    for count in (1, 2):
        said = call(takedown.main, *given, tmp_path / str(count), "--workers", count)
        assert f"took down {len(ids)} documents" in said
    command = ("-m", "pipeline.takedown", *given, tmp_path / "ranks")
    ranks = finish(MPIEXEC, "-n", 3, *FORKED, *command)
    assert ranks.returncode == 0, ranks.stderr
    assert ranks.stdout.startswith("3 ranks on 1 node(s)\n") and ranks.stdout.count("took") == 1
    assert contents(tmp_path / "1") == contents(tmp_path / "2") == contents(tmp_path / "ranks")

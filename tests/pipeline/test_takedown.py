"""Only the tokens and predictions of the documents are gone, in every format."""

import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline import inspect, takedown
from pipeline.data.shards.manifest import read_manifest
from tests.pipeline.data.letters import LETTERS, check, id_of, prepare_letters
from tests.pipeline.preparing import FORKED, MPIEXEC, Call, at_once, contents, finish

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


def test_parts_workers_and_ranks_give_the_bytes_of_one_process(
    prepared: Path, tmp_path: Path
) -> None:
    """Three parts at a time."""
    ids = pq.read_table(prepared / "documents.parquet")["id"].to_pylist()[::40]
    command = ("-m", "pipeline.takedown", "--data", prepared, "--documents", *ids, "--output")
    one = finish(sys.executable, *command, tmp_path / "one", "--workers", 1)
    assert one.returncode == 0 and f"took down {len(ids)} documents" in one.stdout, one.stderr
    parts = (("1/3", "--workers", 2), ("2/3",), ("3/3",))
    found = at_once(
        *[(sys.executable, *command, tmp_path / "parts", "--part", *part) for part in parts]
    )
    assert [code for code, *_ in found] == [0, 0, 0], found
    out = "".join(text for _, text, _ in found)
    # one that starts when the others have published says what they have done
    took = out.count("took down")
    assert took >= 1 and took + out.count("the last to finish publishes") == 3
    ranks = finish(MPIEXEC, "-n", 3, *FORKED, *command, tmp_path / "ranks")
    assert ranks.returncode == 0, ranks.stderr
    assert ranks.stdout.startswith("3 ranks on 1 node(s)\n") and ranks.stdout.count("took") == 1
    whole = contents(tmp_path / "one")
    assert contents(tmp_path / "parts") == whole == contents(tmp_path / "ranks")

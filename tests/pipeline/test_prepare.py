"""The offline stage as a whole: same bytes for any workers, after any crash, and nothing lost."""

import gzip
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest
import xxhash
from tokenizers import Tokenizer

from pipeline import inspect
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import read_manifest
from pipeline.data.text.documents import DocumentCounts, read_batches
from pipeline.data.text.text_tasks import cut_tasks
from pipeline.data.tokenizers.document_encoder import TextEncoder
from pipeline.data.tokenizers.reference_engine import EngineMismatch
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.loading.dataset import Dataset
from tests.pipeline import preparing
from tests.pipeline.conftest import launch, run_unheard
from tests.pipeline.preparing import Call, Prepare, children, contents, tiny, write_jsonl

PREPARE = (sys.executable, "-m", "pipeline.prepare")
STORY = "One day it rained. Nobody minded. The <mask> is literal, and so is </s>. It ended."


@pytest.mark.usefixtures("quick_workers")
def test_the_same_bytes_for_any_number_of_workers(
    prepared: Path, tmp_path: Path, make: Prepare
) -> None:
    make("--corpus", "sample", "--workers", 3)
    assert contents(tmp_path / "out") == contents(prepared)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("raise SystemExit(0)", "SystemExit: 0 at tidy.py:2"),
        ("raise BaseException('odd')", "BaseException: odd at tidy.py:2"),
        ("return document.body", "fix the function of --map"),
        ("return None", "3 map; .*--map"),
        ("return document.text if document.id.endswith('@0') else [][0]", "2 of 3.*of --map"),
    ],
)
def test_a_function_that_ends_or_fails(
    body: str, shown: str, tmp_path: Path, make: Prepare, run: Prepare
) -> None:
    """sys.exit(0) in it ended the command as if all was well, without shards."""
    corpus = write_jsonl(tmp_path / "in.jsonl", [STORY, f"{STORY} It rained.", STORY.upper()])
    (tmp_path / "tidy.py").write_text(f"def tidy(document):\n    {body}\n")
    given = ("--corpus", corpus, "--map", f"{tmp_path / 'tidy.py'}:tidy")
    line = make(*given, code=2)
    assert re.search(shown, line) and line.count("\n") == 1 and "--text-field" not in line
    if "2 of 3" not in shown:  # before a tokenizer is trained
        line = run(*given, "--workers", 1, "--recipe", "roberta_tiny", code=2)
        assert re.search(shown.removeprefix("3 "), line) and "--text-field" not in line


@pytest.mark.parametrize(
    ("scheme", "stored", "more"),
    [
        ("whole_word", 2, []), ("ngram", 0, ["data.masks.max_ngram=2"]), ("span", 2, []),
        ("electra", 0, ["data.masks.mask_share=0.85", "data.masks.random_share=0"]),
    ],
)  # fmt: skip
def test_every_scheme_stored_or_drawn(
    scheme: str, stored: int, more: list[str], tmp_path: Path, make: Prepare, call: Call
) -> None:
    """Shards are prepared, verified and shown; validation has a mask even if train stores none."""
    mode = "per-epoch" if stored == 0 else "duplicates"
    settings = [f"data.masking={scheme}", f"data.mask_mode={mode}", f"data.duplicates={stored}"]
    given = [word for setting in (*settings, *more) for word in ("--set", setting)]
    texts = [f"Story {k}. {STORY} It was number {k * k}." for k in range(60)]
    output = tmp_path / "out"
    make("--corpus", write_jsonl(tmp_path / "in.jsonl", texts), *given)
    manifest = read_manifest(output)
    assert manifest.masking["scheme"] == scheme and manifest.duplicates == stored
    for split, count in (("train", stored), ("validation", max(1, stored))):
        assert [len(shard.masks) for shard in manifest.of(split)] == [count]
    assert len(list(output.glob("mask-*/train-*"))) == stored
    out = call(inspect.main, output, "--verify", "--tokens", 0)
    assert f"scheme       {scheme}" in out and "masks match their keys" in out
    shown = max(len(line.split()) for line in out.splitlines() if "'Ġ" in line or "' " in line)
    assert shown >= (stored or 10)
    dataset = Dataset.open(output)
    rows = np.arange(int(dataset.piece_rows.sum()))
    predicted = dataset.records(rows, 0).fields["predictions"]
    assert 0 < predicted.max() <= manifest.max_predictions
    assert 0 < dataset.mean_predictions <= manifest.max_predictions
    validation = Dataset.open(output, "validation")
    assert validation.masking is None and validation.cycle == max(1, stored)


def test_the_columns_are_the_recorded_ones(prepared: Path) -> None:
    """Hash over logical buffers: a change of masks, packing, sentences or cleaning shows here.

    When it is meant to change, raise that part's version, which is in every fingerprint.
    """
    digest = xxhash.xxh3_64()
    manifest = read_manifest(prepared)
    for shard in manifest.shards:
        table = arrow_files.read_table(prepared / shard.file)
        for name in ("input_ids", "document_starts"):
            for buffer in arrow_files.ragged(table[name]):
                digest.update(np.ascontiguousarray(buffer))
        for name in ("second_segment", "pair_label", "sequence"):
            digest.update(np.ascontiguousarray(table[name].to_numpy()))
        digest.update(json.dumps(table["corpus"].to_pylist()).encode())
        for mask in shard.masks:
            table = arrow_files.read_table(prepared / mask.file)
            for name in ("positions", "actions", "random_ids"):
                for buffer in arrow_files.ragged(table[name]):
                    digest.update(np.ascontiguousarray(buffer))
    assert digest.hexdigest() == "171a3b102f057093"


def test_every_document_is_recovered(prepared: Path) -> None:
    """Decoding the rows gives back the cleaned text of every document, byte for byte."""
    _, sources = corpus_sources("sample", [])
    expected = {}
    counts = DocumentCounts()
    for task in cut_tasks(sources, 1 << 23):
        for batch in read_batches(task.pieces, 0, counts):
            for index, name in enumerate(batch.ids):
                start, stop = batch.offsets[index], batch.offsets[index + 1] - 1
                expected[task.corpus, name] = batch.buffer[start:stop].tobytes()
    found = recover(prepared)
    assert found == expected
    manifest = read_manifest(prepared)
    assert manifest.totals["documents"] == len(expected)
    for name, corpus in manifest.corpora.items():
        mine = [text for (owner, _), text in expected.items() if owner == name]
        assert corpus["documents"] == len(mine) and corpus["bytes"] == sum(map(len, mine))


def recover(directory: Path) -> dict[tuple[str, str], bytes]:
    """(corpus, document id) -> text, from shards and documents.parquet alone."""
    begins: dict[int, list[tuple[str, str]]] = {}
    ids_of: dict[tuple[str, str], list[int]] = {}
    for document in pq.read_table(directory / "documents.parquet").to_pylist():
        key = (document["corpus"], document["id"])
        begins.setdefault(document["first_sequence"], []).append(key)
        ids_of[key] = []
    current = ("", "")
    for shard in read_manifest(directory).shards:
        for row in arrow_files.read_table(directory / shard.file).to_pylist():
            new = begins.get(row["sequence"], [])
            ids, marks = row["input_ids"], row["document_starts"]
            for number, (start, stop) in enumerate(zip(marks, [*marks[1:], len(ids)])):
                if len(marks) - number <= len(new):
                    current = new[len(new) - (len(marks) - number)]
                ids_of[current] += ids[start + (number == 0) : stop - 1]
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer" / "tokenizer.json"))
    return {
        key: tokenizer.decode(ids, skip_special_tokens=False).encode()
        for key, ids in ids_of.items()
    }


def test_shards_open_with_datasets(prepared: Path, tmp_path: Path) -> None:
    """As the README says, with splits by file name; masks match rows."""
    rows, masks = (
        datasets.load_dataset("arrow", data_dir=str(prepared / name), cache_dir=str(tmp_path))
        for name in ("rows", "mask-9")
    )
    manifest = read_manifest(prepared)
    for split in ("train", "validation"):
        shards = manifest.of(split)
        assert len(rows[split]) == sum(shard.sequences for shard in shards)
        assert sum(map(len, rows[split]["input_ids"])) == sum(shard.tokens for shard in shards)
        assert len(masks[split]) == len(rows[split])
        assert isinstance(masks[split][0]["positions"], bytes)


@pytest.mark.parametrize("is_packed", [False, True])
def test_many_splits(
    is_packed: bool, tmp_path: Path, make: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Splits of 8 KB: byte ranges of a plain file, parts in a row of a compressed one."""
    monkeypatch.setattr("pipeline.prepare.SPLIT_BYTES", 1 << 13)
    monkeypatch.setattr("pipeline.prepare.SHARD_BYTES", 1)
    monkeypatch.setattr("pipeline.data.text.documents.BATCH_CHARACTERS", 1 << 11)
    texts = [f"Document {i} begins. " + f"It says {i} again. " * (i % 50) for i in range(400)]
    lines = [json.dumps({"text": text}) for text in texts]
    lines[50::50] = [f'{{"text": " "}}\n{line}' for line in lines[50::50]]
    content = "\n".join(lines).encode()
    (tmp_path / "in").write_bytes(gzip.compress(content) if is_packed else content)
    given = ("--corpus", "news", "--input", tmp_path / "in", "--set", "data.duplicates=1")
    make(*given)
    manifest = read_manifest(tmp_path / "out")
    assert len(manifest.of("train")) > 10
    assert manifest.corpora["news"]["dropped"] == {"empty": 7}, "in whichever part they are"
    found = sorted(recover(tmp_path / "out").values())
    assert found == sorted(text.strip().encode() for text in texts)
    keys = [
        key
        for shard in manifest.shards
        for key in arrow_files.read_table(tmp_path / "out" / shard.file)["sequence"].to_pylist()
    ]
    assert len(set(keys)) == len(keys) == manifest.totals["sequences"]
    # a run that was stopped between two parts of a file resumes after the first
    work = tmp_path / "again" / ".work"
    with monkeypatch.context() as patch:
        patch.setattr("pipeline.data.preparation.publication.assemble_shards", _stop)
        with pytest.raises(InterruptedError):
            make(*given, output="again")
    for marker in sorted(work.glob("task-*.json")) + sorted(work.glob("part-*.json"))[1::2]:
        marker.unlink()
    make(*given, output="again")
    assert contents(tmp_path / "again") == contents(tmp_path / "out")


def _stop(*_: object) -> None:
    raise InterruptedError


def test_the_settings_of_a_run(tmp_path: Path, run: Prepare) -> None:
    """As it recorded them, and no recipe's."""
    golden, output = Path(__file__).parents[1] / "golden", tmp_path / "out"
    record = golden / "runs/bert/run.json"
    text = write_jsonl(tmp_path / "in.jsonl", [STORY, STORY.upper(), "More."])
    given = ("--recipe", record, "--tokenizer", golden / "exports/bert")
    run("--corpus", text, *given, "--output", output, "--workers", 1)
    asked, data = json.loads(record.read_text())["run"]["data"], read_manifest(output).data
    for name, value in {"format": "segment_pair", "vocab_size": 512, "duplicates": 2}.items():
        assert data[name] == asked[name] == value


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.slow), 7])
def test_a_crash_at_every_point_leaves_nothing_half_done(
    stride: int, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """crash_points.py kills a run around every sync and rename, and midway in every write.

    A stride of seven meets points before and after a rename alike.
    """
    texts = [f"Story {i}. It rained on day {i}. It ended." for i in range(60)]
    path = write_jsonl(tmp_path / "in.jsonl", texts)
    script = Path(__file__).parents[1] / "end_to_end" / "crash_points.py"
    result = launch(sys.executable, script, path, tiny_tokenizer, tmp_path, stride)
    assert result.returncode == 0, result.stdout + result.stderr
    assert int(result.stdout.splitlines()[-1].split()[0]) > 80 // stride, "points tried"


def test_a_mismatch_is_remembered_over_a_restart(
    tmp_path: Path, make: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a mismatch in a split, no part of it is made with gigatoken."""
    monkeypatch.setattr("pipeline.prepare.SPLIT_BYTES", 1 << 11)
    monkeypatch.setattr("pipeline.data.text.documents.BATCH_CHARACTERS", 1 << 9)
    path = tmp_path / "in.jsonl.gz"
    text = "".join(json.dumps({"text": f"Text {i}. " * 20}) + "\n" for i in range(40))
    path.write_bytes(gzip.compress(text.encode()))
    encode = TextEncoder.encode
    calls = {"fast": 0, "slow": 0}

    def failing(self: TextEncoder, *given: Any) -> Any:
        calls["fast" if self.fast else "slow"] += 1
        if self.fast and calls["fast"] == 5:
            raise EngineMismatch("made up")
        if not self.fast and calls["slow"] == 3:
            raise InterruptedError
        return encode(self, *given)

    # the probe of a new Encoder is a call too; here the first two
    monkeypatch.setattr(TextEncoder, "encode", failing)
    with pytest.raises(InterruptedError):
        make("--corpus", path)
    monkeypatch.setattr(TextEncoder, "encode", encode)
    out = make("--corpus", path)
    assert "gigatoken differed from tokenizers" in out and "made up" in out
    manifest = read_manifest(tmp_path / "out")
    assert manifest.engine["mismatches"] == ["in.jsonl.gz: made up"]
    monkeypatch.setattr(Vocabulary, "has_fast_engine", False)
    make("--corpus", path, output="slow")
    for shard in manifest.shards:
        mine, other = (arrow_files.read_table(tmp_path / d / shard.file) for d in ("out", "slow"))
        assert mine.equals(other)


def test_every_file_is_on_disk_before_it_gets_its_name(
    tmp_path: Path, make: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    fsync, replace = os.fsync, os.replace
    unsynced: list[str] = []

    def record(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def check(source: Any, target: Any, **options: Any) -> None:
        if os.stat(source).st_ino not in synced:  # noqa: PTH116 (as os.replace is called)
            unsynced.append(str(target))
        replace(source, target, **options)

    monkeypatch.setattr(os, "fsync", record)
    monkeypatch.setattr(os, "replace", check)
    path = write_jsonl(tmp_path / "in.jsonl", [STORY, STORY.upper(), "More."])
    make("--corpus", path)
    assert not unsynced and len(synced) > 20


def test_without_a_reader_of_its_output_it_ends_but_not_well(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """`prepare | head -1` ended with 0 and no shards, so a script went on to train."""
    path = write_jsonl(tmp_path / "in.jsonl", [STORY, STORY.upper()])
    (tmp_path / "says.py").write_text(
        "def says(document):\n    print(1, flush=True)\n    return ''"
    )
    for more in ((), ("--map", f"{tmp_path}/says.py:says")):  # which does not drop the documents
        arguments = ("--corpus", path, "--workers", 1, *tiny(tiny_tokenizer, tmp_path / "out"))
        assert run_unheard(*PREPARE, *arguments, *more) == 141
        assert not (tmp_path / "out/manifest.json").exists()


def test_interrupted_workers_exit_at_once(tiny_tokenizer: Path, tmp_path: Path) -> None:
    """Ctrl-C: one line, exit code 130, and no process left."""
    path = write_jsonl(tmp_path / "in.jsonl", [f"Text {i}. " * 3000 for i in range(2000)])
    arguments = ("--corpus", path, "--workers", 2, *tiny(tiny_tokenizer, tmp_path / "out"))
    with preparing.started(*PREPARE, *arguments) as process:
        preparing.wait_until((tmp_path / "out" / ".work").exists, process)
        preparing.wait_until(lambda: children(process.pid), process)
        workers = children(process.pid)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, error = process.communicate(timeout=60)
        preparing.wait_for_end(*workers, seconds=15)
    last = error.strip().splitlines()[-1]
    assert last == "interrupted; run the same command again to resume"
    assert process.returncode == 130


def test_workers_follow_a_killed_parent_and_the_next_run_ends_the_same(
    prepared: Path, tiny_tokenizer: Path, tmp_path: Path, run: Prepare
) -> None:
    arguments = ("--corpus", "sample", *tiny(tiny_tokenizer, tmp_path / "out"))
    with preparing.started(*PREPARE, "--workers", 2, *arguments) as process:
        preparing.wait_until(lambda: len(children(process.pid)) >= 2, process)
        workers = children(process.pid)
        time.sleep(1.5)
        process.kill()
        preparing.wait_for_end(*workers, seconds=15)
    run("--workers", 1, *arguments)
    assert contents(tmp_path / "out") == contents(prepared)

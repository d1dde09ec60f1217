"""The offline stage as a whole: same bytes for any workers, after any crash, and nothing lost."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
import zstandard
from transformers import AutoTokenizer

from pipeline import inspect, prepare, takedown
from pipeline.base.errors import run_command
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import MANIFEST, read_manifest
from pipeline.data.text.documents import DocumentCounts, read_batches
from pipeline.data.text.text_tasks import cut_tasks
from pipeline.data.tokenizers.document_encoder import TextEncoder
from pipeline.data.tokenizers.reference_engine import EngineMismatch
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.ingest.corpora.sources import corpus_sources
from pipeline.loading.dataset import Dataset
from tests.pipeline.preparing import Call, Prepare, contents, tiny, write_jsonl

STORY = "One day it rained. Nobody minded. The <mask> is literal, and so is </s>. It ended."


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_same_bytes_for_any_number_of_workers(
    workers: int, prepared: Path, tiny_tokenizer: Path, tmp_path: Path, run: Prepare
) -> None:
    run("--corpus", "sample", "--workers", workers, *tiny(tiny_tokenizer, tmp_path / "out"))
    assert contents(tmp_path / "out") == contents(prepared)


SCHEMES = {
    "whole_word": [],
    "ngram": ["data.masks.max_ngram=2"],
    "span": [],
    "electra": ["data.masks.mask_share=0.85", "data.masks.random_share=0", "data.masks.rate=0.25"],
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("stored", [2, 0])
def test_every_scheme_stored_or_drawn(
    scheme: str, stored: int, tiny_tokenizer: Path, tmp_path: Path, run: Prepare,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Shards are prepared, verified and shown; validation has a mask even if train stores none."""
    mode = "per-epoch" if stored == 0 else "duplicates"
    settings = [f"data.masking={scheme}", f"data.mask_mode={mode}", f"data.duplicates={stored}"]
    given = [word for text in (*settings, *SCHEMES[scheme]) for word in ("--set", text)]
    texts: list[object] = [f"Story {k}. {STORY} It was number {k * k}." for k in range(60)]
    source = write_jsonl(tmp_path / "in.jsonl", texts)
    output = tmp_path / "out"
    run("--corpus", "news", "--input", source, *tiny(tiny_tokenizer, output), *given)
    manifest = read_manifest(output)
    assert manifest.masking["scheme"] == scheme and manifest.duplicates == stored
    assert [len(shard.masks) for shard in manifest.of("train")] == [stored]
    assert [len(shard.masks) for shard in manifest.of("validation")] == [max(1, stored)]
    assert len(list(output.glob("mask-*/train-*"))) == stored
    monkeypatch.setattr(sys, "argv", ["inspect", str(output), "--verify", "--tokens", "0"])
    inspect.main()
    out = capsys.readouterr().out
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
    assert digest.hexdigest() == "7d69922fb1292b47"


def test_every_document_is_recovered(prepared: Path, tiny_vocabulary: Vocabulary) -> None:
    """Decoding the rows gives back the cleaned text of every document, byte for byte."""
    _, sources = corpus_sources("sample", [])
    expected = {}
    counts = DocumentCounts()
    for task in cut_tasks(sources, 1 << 23):
        for batch in read_batches(task.pieces, 0, counts):
            for index, name in enumerate(batch.ids):
                start, stop = batch.offsets[index], batch.offsets[index + 1] - 1
                expected[task.corpus, name] = batch.buffer[start:stop].tobytes()
    found = recover(prepared, tiny_vocabulary)
    assert found == expected
    manifest = read_manifest(prepared)
    assert manifest.totals["documents"] == len(expected)
    for name, corpus in manifest.corpora.items():
        mine = [text for (owner, _), text in expected.items() if owner == name]
        assert corpus["documents"] == len(mine) and corpus["bytes"] == sum(map(len, mine))


def recover(directory: Path, vocabulary: Vocabulary) -> dict[tuple[str, str], bytes]:
    """(corpus, document id) -> text, from shards and documents.parquet alone."""
    symbols = {index: token for token, index in _vocabulary_ids(vocabulary).items()}
    byte_of = {symbol: byte for byte, symbol in enumerate(_byte_symbols())}
    as_bytes = {
        index: bytes(byte_of[c] for c in token)
        for index, token in symbols.items()
        if not vocabulary.special[index]
    }
    documents = pq.read_table(directory / "documents.parquet").to_pylist()
    begins: dict[int, list[tuple[str, str]]] = {}
    for document in documents:
        key = (document["corpus"], document["id"])
        begins.setdefault(document["first_sequence"], []).append(key)
    texts: dict[tuple[str, str], list[bytes]] = {(d["corpus"], d["id"]): [] for d in documents}
    current = ("", "")
    for shard in read_manifest(directory).shards:
        table = arrow_files.read_table(directory / shard.file)
        for row in table.to_pylist():
            new = list(begins.get(row["sequence"], []))
            ids, marks = row["input_ids"], row["document_starts"]
            for number, (start, stop) in enumerate(zip(marks, [*marks[1:], len(ids)])):
                if len(marks) - number <= len(new):
                    current = new[len(new) - (len(marks) - number)]
                piece = ids[start + (number == 0) : stop - 1]
                texts[current].append(b"".join(as_bytes[index] for index in piece))
    return {key: b"".join(pieces) for key, pieces in texts.items()}


def _vocabulary_ids(vocabulary: Vocabulary) -> dict[str, int]:
    return dict(json.loads(vocabulary.tokenizer_json)["model"]["vocab"])


def _byte_symbols() -> list[str]:
    """GPT-2's table: printable bytes stand for themselves, the others for 256, 257, ..."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    moved = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(moved)) for byte in range(256)]


def test_shards_open_with_datasets(prepared: Path, tmp_path: Path) -> None:
    """As the README says, with splits by file name; masks match rows."""
    cache = str(tmp_path)
    rows = datasets.load_dataset("arrow", data_dir=str(prepared / "rows"), cache_dir=cache)
    masks = datasets.load_dataset("arrow", data_dir=str(prepared / "mask-9"), cache_dir=cache)
    manifest = read_manifest(prepared)
    for split in ("train", "validation"):
        shards = manifest.of(split)
        assert len(rows[split]) == sum(shard.sequences for shard in shards)
        assert sum(map(len, rows[split]["input_ids"])) == sum(shard.tokens for shard in shards)
        assert len(masks[split]) == len(rows[split])
        assert isinstance(masks[split][0]["positions"], bytes)


def test_record_batches_are_1024_rows(prepared: Path) -> None:
    for shard in read_manifest(prepared).shards:
        for file in (shard.file, shard.masks[0].file):
            reader = pa.ipc.open_file(prepared / file)
            sizes = [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
            assert all(size == 1024 for size in sizes[:-1]) and 0 < sizes[-1] <= 1024
            assert sum(sizes) == shard.sequences


def test_zstd_holds_the_same_columns(
    prepared: Path, tiny_tokenizer: Path, tmp_path: Path, run: Prepare
) -> None:
    run("--corpus", "sample", "--compression", "zstd", *tiny(tiny_tokenizer, tmp_path / "out"))
    small, plain = read_manifest(tmp_path / "out"), read_manifest(prepared)
    for left, right in zip(small.shards, plain.shards):
        for a, b in zip((left, *left.masks), (right, *right.masks)):
            assert arrow_files.read_table(tmp_path / "out" / a.file).equals(
                arrow_files.read_table(prepared / b.file)
            )
        assert sum(mask.bytes for mask in left.masks) < sum(mask.bytes for mask in right.masks)


def test_the_bare_command_writes_to_the_root_and_runs_once(
    tmp_path: Path, run: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENFOLD_ROOT", str(tmp_path))
    path = write_jsonl(tmp_path / "mine.jsonl", [STORY, STORY.upper(), "Short."])
    command = ["--corpus", path, "--recipe", "roberta_tiny", "--workers", 1]
    first = run(*command)
    assert "training it on this corpus" in first and "3 documents" in first
    (output,) = (tmp_path / "shards").iterdir()
    assert output.name.startswith("mine-roberta_tiny-")
    (tokenizer,) = (tmp_path / "tokenizers").glob("*/tokenizer.json")
    assert tokenizer.parent.name.startswith("byte-bpe-2048.mine.")
    assert not (output / ".work").exists()
    again = run(*command)
    assert "complete already" in again and "training" not in again
    other = run(*command, "--set", "data.sequence_length=16")
    assert "prepared 3 documents" in other and len(list((tmp_path / "shards").iterdir())) == 2


FORMATS: dict[str, Callable[[Path, str], object]] = {
    "plain.jsonl": lambda path, text: path.write_text(text),
    "packed.jsonl.gz": lambda path, text: path.write_bytes(gzip.compress(text.encode())),
    "packed.jsonl.zst": lambda path, text: path.write_bytes(
        zstandard.ZstdCompressor().compress(text.encode())
    ),
    "packed.jsonl.xz": lambda path, text: path.write_bytes(lzma.compress(text.encode())),
    "table.parquet": lambda path, text: pq.write_table(
        pa.table({"text": [json.loads(line)["text"] for line in text.splitlines()]}), path
    ),
    "blank.txt": lambda path, text: path.write_text(
        "\n\n".join(json.loads(line)["text"] for line in text.splitlines())
    ),
    "wiki_00": lambda path, text: path.write_text(text),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_rows(
    name: str, tiny_tokenizer: Path, tmp_path: Path, run: Prepare
) -> None:
    texts = [f"Document {i} has two sentences. This is the second, of {i}." for i in range(40)]
    (tmp_path / "in").mkdir()
    FORMATS[name](tmp_path / "in" / name, "".join(json.dumps({"text": t}) + "\n" for t in texts))
    write_jsonl(tmp_path / "reference.jsonl", texts)
    for out, given in (("out", tmp_path / "in" / name), ("ref", tmp_path / "reference.jsonl")):
        run("--corpus", "news", "--input", given, *tiny(tiny_tokenizer, tmp_path / out))
    for file in (
        "rows/train-00000.arrow",
        "mask-3/train-00000.arrow",
        "rows/validation-00000.arrow",
    ):
        left, right = (arrow_files.read_table(tmp_path / out / file) for out in ("out", "ref"))
        assert left.equals(right), file


@pytest.mark.parametrize("name", ["plain.jsonl", "packed.jsonl.gz"])
def test_many_splits(
    name: str,
    tiny_tokenizer: Path,
    tiny_vocabulary: Vocabulary,
    tmp_path: Path,
    run: Prepare,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Splits of 8 KB: byte ranges of a plain file, parts in a row of a compressed one."""
    monkeypatch.setattr("pipeline.prepare.SPLIT_BYTES", 1 << 13)
    monkeypatch.setattr("pipeline.prepare.SHARD_BYTES", 1)
    monkeypatch.setattr("pipeline.data.text.documents.BATCH_CHARACTERS", 1 << 11)
    texts = [f"Document {i} begins. " + f"It says {i} again. " * (i % 50) for i in range(400)]
    lines = [json.dumps({"text": text}) for text in texts]
    lines[50::50] = [f'{{"text": " "}}\n{line}' for line in lines[50::50]]
    FORMATS[name](tmp_path / name, "\n".join(lines))
    arguments = ["--corpus", "news", "--input", tmp_path / name, "--workers", 1]
    run(*arguments, *tiny(tiny_tokenizer, tmp_path / "out"))
    manifest = read_manifest(tmp_path / "out")
    assert len(manifest.of("train")) > 10
    assert manifest.corpora["news"]["dropped"] == {"empty": 7}, "in whichever part they are"
    found = sorted(recover(tmp_path / "out", tiny_vocabulary).values())
    assert found == sorted(text.strip().encode() for text in texts)
    keys = [
        key
        for shard in manifest.shards
        for key in arrow_files.read_table(tmp_path / "out" / shard.file)["sequence"].to_pylist()
    ]
    assert len(set(keys)) == len(keys) == manifest.totals["sequences"]
    # a run that was stopped between two parts of a file resumes after the first
    work = tmp_path / "again" / ".work"
    monkeypatch.setattr("pipeline.data.preparation.publication.assemble_shards", _stop)
    with pytest.raises(InterruptedError):
        run(*arguments, *tiny(tiny_tokenizer, tmp_path / "again"))
    for marker in sorted(work.glob("task-*.json")) + sorted(work.glob("part-*.json"))[1::2]:
        marker.unlink()
    monkeypatch.undo()
    monkeypatch.setattr("pipeline.prepare.SPLIT_BYTES", 1 << 13)
    monkeypatch.setattr("pipeline.prepare.SHARD_BYTES", 1)
    monkeypatch.setattr("pipeline.data.text.documents.BATCH_CHARACTERS", 1 << 11)
    monkeypatch.setattr(
        sys,
        "argv",
        ["prepare", *map(str, arguments), *map(str, tiny(tiny_tokenizer, tmp_path / "again"))],
    )
    run_command(prepare.main)
    assert contents(tmp_path / "again") == contents(tmp_path / "out")


def _stop(*_: object) -> None:
    raise InterruptedError


def _binary(path: Path) -> Path:
    path.write_bytes(bytes(range(256)) * 50)
    return path


GOOD = b'{"text": "a b."}\n'
NOISE = b"".join(b'{"text": "%s"}\n' % os.urandom(500).hex().encode() for _ in range(20))

BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing": (lambda p: p / "nothing.jsonl", "nothing.jsonl"),
    "empty": (lambda p: write_jsonl(p / "empty.jsonl", []), "empty.jsonl"),
    "binary": (lambda p: _binary(p / "binary.jsonl"), "binary.jsonl"),
    "no text": (lambda p: _bytes(p / "no.jsonl", GOOD + b'{"title": "x"}\n'), "no.jsonl:2"),
    "not JSON": (lambda p: _bytes(p / "bad.jsonl", GOOD + b'{"text": \n'), "bad.jsonl:2"),
    "damaged second stream": (
        lambda p: _bytes(p / "s.bz2", bz2.compress(GOOD * 9000) + b"bZh" + bz2.compress(GOOD)[3:]),
        "s.bz2 is damaged (other bytes than padding after the last good part); fetch it again",
    ),
    "not UTF-8": (lambda p: _bytes(p / "u.jsonl", GOOD + b'{"text": "\xff"}\n'), "u.jsonl:2"),
    "blank": (lambda p: write_jsonl(p / "blank.jsonl", ["", "  \n"]), "no text"),
    "cut gzip": (lambda p: _bytes(p / "a.gz", gzip.compress(NOISE)[:-999]), "a.gz"),
    "cut zstd": (lambda p: _bytes(p / "a.zst", zstandard.compress(NOISE)[:-999]), "a.zst"),
}


def _bytes(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_no_manifest(
    case: str, tiny_tokenizer: Path, tmp_path: Path, run: Prepare
) -> None:
    make, named = BAD[case]
    error = run(
        "--corpus",
        "news",
        "--input",
        make(tmp_path),
        *tiny(tiny_tokenizer, tmp_path / "out"),
        code=2,
    )
    assert error.startswith("error: ") and error.count("\n") == 1 and named in error
    assert not (tmp_path / "out" / MANIFEST).exists()


def test_a_vocabulary_larger_than_the_recipe_says(
    tiny_tokenizer: Path, tmp_path: Path, run: Prepare
) -> None:
    arguments = tiny(tiny_tokenizer, tmp_path / "out")
    error = run("--corpus", "sample", "--set", "data.vocab_size=1000", *arguments, code=2)
    assert "--set data.vocab_size=2048" in error


def test_a_tokenizer_saved_with_truncation_loses_no_text(
    prepared: Path, tiny_tokenizer: Path, tmp_path: Path, run: Prepare
) -> None:
    """The same shards as without."""
    folder = tmp_path / "used"
    shutil.copytree(tiny_tokenizer, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer(["once", "more"], truncation=True, max_length=16, padding="max_length")
    tokenizer.save_pretrained(folder)
    saved = json.loads((folder / "tokenizer.json").read_bytes())
    assert saved["truncation"] and saved["padding"]
    run("--corpus", "sample", *tiny(folder, tmp_path / "out"))
    tokens = [read_manifest(each).totals for each in (tmp_path / "out", prepared)]
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_crash_at_every_point_leaves_nothing_half_done(
    stride: int, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """crash_points.py kills a run before, during and after every write, sync and rename.

    Those are two points each, so that every third point is of both kinds.
    """
    texts = [f"Story {i}. It rained on day {i}. It ended." for i in range(60)]
    path = write_jsonl(tmp_path / "in.jsonl", texts)
    script = Path(__file__).parent.parent / "end_to_end" / "crash_points.py"
    result = subprocess.run(
        [sys.executable, script, path, tiny_tokenizer, tmp_path, str(stride)],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert int(result.stdout.splitlines()[-1].split()[0]) > 80 // stride, "points tried"


def test_a_mismatch_is_remembered_over_a_restart(
    tiny_tokenizer: Path, tmp_path: Path, run: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a mismatch in a split, no part of it is made with gigatoken."""
    monkeypatch.setattr("pipeline.prepare.SPLIT_BYTES", 1 << 11)
    monkeypatch.setattr("pipeline.data.text.documents.BATCH_CHARACTERS", 1 << 9)
    path = tmp_path / "in.jsonl.gz"
    text = "".join(json.dumps({"text": f"Text {i}. " * 20}) + "\n" for i in range(40))
    path.write_bytes(gzip.compress(text.encode()))
    arguments = ["--corpus", path, "--workers", 1]
    encode = TextEncoder.encode
    calls = {"fast": 0, "slow": 0}

    def failing(self: TextEncoder, *given: Any) -> Any:
        calls["fast" if self.fast else "slow"] += 1
        if self.fast and calls["fast"] == 4:
            raise EngineMismatch("made up")
        if not self.fast and calls["slow"] == 3:
            raise InterruptedError
        return encode(self, *given)

    # the probe of a new Encoder is a call too; here the first one
    monkeypatch.setattr(TextEncoder, "encode", failing)
    with pytest.raises(InterruptedError):
        run(*arguments, *tiny(tiny_tokenizer, tmp_path / "out"))
    monkeypatch.setattr(TextEncoder, "encode", encode)
    out = run(*arguments, *tiny(tiny_tokenizer, tmp_path / "out"))
    assert "gigatoken differed from tokenizers" in out and "made up" in out
    manifest = read_manifest(tmp_path / "out")
    assert manifest.engine["mismatches"] == ["in.jsonl.gz: made up"]
    run(*arguments, "--engine", "tokenizers", *tiny(tiny_tokenizer, tmp_path / "slow"))
    for shard in manifest.shards:
        mine, other = (arrow_files.read_table(tmp_path / d / shard.file) for d in ("out", "slow"))
        assert mine.equals(other)


def test_every_file_is_on_disk_before_it_gets_its_name(
    tiny_tokenizer: Path, tmp_path: Path, run: Prepare, monkeypatch: pytest.MonkeyPatch
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
    run("--corpus", path, "--workers", 1, *tiny(tiny_tokenizer, tmp_path / "out"))
    assert not unsynced and len(synced) > 20


def test_interrupted_workers_exit_at_once(tiny_tokenizer: Path, tmp_path: Path) -> None:
    """Ctrl-C: one line, exit code 130, and no process left."""
    texts = [f"Text {i}. " * 3000 for i in range(2000)]
    path = write_jsonl(tmp_path / "in.jsonl", texts)
    arguments = [str(a) for a in tiny(tiny_tokenizer, tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline.prepare", "--corpus", path, "--workers", "2", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # a shell that runs these tests in the background has us ignore Ctrl-C
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (children := _children(process.pid)) or not (tmp_path / "out" / ".work").exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error.strip().splitlines()[-1] == "interrupted; run the same command again to resume"
    _wait_until_gone(children)


def test_workers_follow_a_killed_parent(tiny_tokenizer: Path, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "in.jsonl", [f"Text {i}. " * 3000 for i in range(2000)])
    arguments = [str(a) for a in tiny(tiny_tokenizer, tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline.prepare", "--corpus", path, "--workers", "2", *arguments]
    )
    deadline = time.monotonic() + 60
    while len(children := _children(process.pid)) < 2:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    _wait_until_gone(children)


def _children(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def _wait_until_gone(processes: list[int]) -> None:
    deadline = time.monotonic() + 15
    for process in processes:
        while (stat := Path(f"/proc/{process}/stat")).exists():
            try:
                if stat.read_text().rsplit(")", 1)[1].split()[0] == "Z":
                    break  # a zombie: its exit code has not been read yet
            except (FileNotFoundError, ProcessLookupError):
                break
            assert time.monotonic() < deadline, f"process {process} works on"
            time.sleep(0.05)


@pytest.mark.parametrize("delay", [pytest.param(0.8, marks=pytest.mark.slow), 1.5, 2.2])
def test_killed_with_its_workers_and_run_again(
    delay: float, prepared: Path, tiny_tokenizer: Path, tmp_path: Path, run: Prepare
) -> None:
    arguments = ["--corpus", "sample", *map(str, tiny(tiny_tokenizer, tmp_path / "out"))]
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline.prepare", "--workers", "2", *arguments]
    )
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()
    run(*arguments)
    assert contents(tmp_path / "out") == contents(prepared)


STRANGE_NAMES = ("no\u00a0break \u200c\u200d", "two\nlines\t", "n" * 240)


def test_file_names_of_any_characters(
    call: Call, tiny_tokenizer: Path, tmp_path: Path, run: Prepare
) -> None:
    """Every file is read, ids are one line each, and a list of them takes the documents down."""
    folder = tmp_path / "in\n\u200d"
    folder.mkdir()
    for number, name in enumerate(STRANGE_NAMES):
        texts = [f"Text {number} says {n} and more." for n in range(20)]
        write_jsonl(folder / f"{name}.jsonl", texts)
        with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
            archive.writestr(f"{name}.txt", f"The packed text {number}. It has two sentences.")
    out = run("--corpus", "mine", "--input", folder, *tiny(tiny_tokenizer, tmp_path / "out"),
              "--workers", 1)  # fmt: skip
    assert all(line.isprintable() for line in out.splitlines())
    ids = pq.read_table(tmp_path / "out" / "documents.parquet")["id"].to_pylist()
    assert len(ids) == len(set(ids)) == len(STRANGE_NAMES) * 21
    assert all(id.isprintable() for id in ids) and r"two\nlines\t.jsonl@0" in ids
    listed = tmp_path / "ids"
    listed.write_text("\n".join(sorted(ids)[::20]), encoding="utf-8")
    given = ("--data", tmp_path / "out", "--documents", listed, "--output", tmp_path / "new")
    said = call(takedown.main, *given, "--workers", 1)
    assert f"took down {len(ids[::20])} documents" in said

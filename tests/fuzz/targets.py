"""What is mutated and how it is read, one entry a kind of input."""

import bz2
import gzip
import io
import json
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import zstandard

from pipeline import inspect, prepare
from pipeline.data.shards.manifest import MANIFEST, hash_file
from pipeline.data.text.cleaning import clean
from pipeline.data.text.documents import DocumentCounts, read_batches
from pipeline.data.text.sentences import sentence_starts
from pipeline.data.tokenizers.document_encoder import TextEncoder
from pipeline.data.tokenizers.folders import read_vocabulary, save_vocabulary
from pipeline.data.tokenizers.trainers import train_vocabulary
from pipeline.execution.workers import local_executor
from pipeline.ingest.documents.read import cut
from pipeline.ingest.documents.sniff import sniff
from pipeline.ingest.extraction.extract import extract
from pipeline.loading.dataset import Dataset
from pipeline.loading.loader import Loader
from pipeline.loading.micro_batch import BatchForm, Extras
from pipeline.loading.order import Order, Share
from pipeline.loading.placement import Capacity
from pipeline.planning.build import build_model
from pipeline.recipes import recipe
from pipeline.released.folder import CONFIG
from pipeline.training.checkpoints.fragment_files import INDEX, seal
from pipeline.training.checkpoints.read import STATE, open_checkpoint, step_name
from pipeline.training.weights.model_folders import load_folder, write_folder
from tests.fuzz.formats import column_mutated, footer_mutated, headers_mutated
from tests.fuzz.mutations import as_json, bytes_mutated, json_mutated, value_mutated
from tests.fuzz.small_files import (
    Read,
    arms_case,
    build_report,
    lists_case,
    report_case,
    scores_case,
    tasks_case,
)
from tests.pipeline.ingest.dump import small_dump
from tests.pipeline.ingest.tars import tar
from tests.pipeline.ingest.web_archive import articles, conversion, members
from tests.pipeline.training.toy_checkpoints import save

TEXTS = [f"Document {n} begins. " + f"It says {n} again, the {n}th time. " * n for n in range(40)]


class Target(NamedTuple):
    """One kind of input."""

    name: str
    build: Callable[[Path], object]
    """Makes good input in a new folder."""
    read: Read


# --- Corpora


@cache
def _lines() -> list[bytes]:
    text = "".join(json.dumps({"text": t, "url": f"u{n}"}) + "\n" for n, t in enumerate(TEXTS[:12]))
    array = json.dumps([{"text": t} for t in TEXTS[:9]], indent=1)
    return [text.encode(), array.encode()]


@cache
def _parquet() -> list[bytes]:
    found = []
    for options in ({}, {"compression": "zstd"}, {"use_dictionary": False, "version": "1.0"}):
        stream = io.BytesIO()
        table = pa.table({"text": TEXTS, "id": range(len(TEXTS)), "more": [[1], None] * 20})
        pq.write_table(table, stream, row_group_size=16, **options)
        found.append(stream.getvalue())
    return found


@cache
def _tar() -> list[bytes]:
    content = {
        "a.txt": TEXTS[9].encode(), "b.jsonl": _lines()[0], "é" * 40: b"A text.",
        "c.gz": gzip.compress(b"More text."), "d.parquet": _parquet()[0],
    }  # fmt: skip
    return [tar(content, kind) for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT,
                                            tarfile.PAX_FORMAT)]  # fmt: skip


@cache
def _warc() -> list[bytes]:
    pages = [*articles(3), conversion("A text of a page. " * 20)]
    return [b"".join(pages), members(pages), gzip.compress(b"".join(pages))]


PACK: tuple[Callable[[bytes], bytes], ...] = (
    gzip.compress, bz2.compress, zstandard.ZstdCompressor().compress,
)  # fmt: skip
CORPORA: dict[str, tuple[Callable[[], list[bytes]], tuple[bytes, ...]]] = {
    "json-lines": (_lines, (b"{", b'"', b"\n", b"\\ud800", b"[", b"\0", b"\xff", b"9" * 5000)),
    "parquet": (_parquet, (b"PAR1", b"\0\0\0\0", b"\xff\xff\xff\xff\x0f")),
    "tar": (_tar, (bytes(512), b"ustar", b"9" * 11, b"30 path=" + b"x" * 600)),
    "warc": (
        _warc,
        (b"WARC/1.0\r\n", b"\r\n\r\n", b"Content-Length: ", b"<div>", b"&#x110000;", b"<!--"),
    ),
    "mediawiki": (
        lambda: [small_dump()],
        (b"<page>", b"</text>", b"{{", b"[[", b"<ref>", b"&#0;", b"<![CDATA[", b"{|", b"'''"),
    ),
}
INSIDE = {"parquet": footer_mutated, "tar": headers_mutated}
"""Mutations that the outer checks of a format let pass."""


def _corpus_case(name: str, good: Path, random: Random, place: Path) -> Iterator[str]:
    contents, words = CORPORA[name][0](), CORPORA[name][1]
    content = random.choice(contents)
    packed = name != "parquet" and random.random() < 0.3
    mutate_first = not packed or random.random() < 0.5
    if mutate_first and name in INSIDE and random.random() < 0.5:
        content = INSIDE[name](content, random)
    elif mutate_first:
        content = bytes_mutated(content, random, words, same_size=random.random() < 0.3)
    if packed:
        content = random.choice(PACK)(content)
    if not mutate_first:
        content = bytes_mutated(content, random)
    path = place / "file"
    path.write_bytes(content)
    sources = extract([sniff(path, "own", "file")], place / "documents", local_executor(1))
    counts = DocumentCounts()
    pieces = tuple(piece for source in sources for piece in cut(source, 4096))
    for _ in read_batches(pieces, 0, counts):
        yield "documents"
    yield from (f"dropped: {reason}" for reason in (*counts.dropped, *counts.bad))


# --- Tokenizers and model folders

KINDS = ("byte-bpe", "wordpiece", "unigram")


def _build_tokenizers(good: Path) -> None:
    for kind in KINDS:
        found = train_vocabulary(kind, lambda: iter(TEXTS), 320, lower_case=kind != "byte-bpe")
        save_vocabulary(found, good / kind, 64)
        TextEncoder.create(found)  # compiles what every case runs


def _tokenizer_case(good: Path, random: Random, place: Path) -> Iterator[str]:
    contents = [(good / kind / "tokenizer.json").read_bytes() for kind in KINDS]
    (place / "tokenizer.json").write_bytes(json_mutated(random.choice(contents), random))
    vocabulary = read_vocabulary(place)
    encoder = TextEncoder.create(vocabulary)
    text = clean(TEXTS[5:9])
    sentences = sentence_starts(text.buffer, text.offsets)
    tokens, _ = encoder.encode(text.buffer, text.offsets, sentences, text.offsets[1:] > 0)
    assert not len(tokens.ids) or tokens.ids.max() < vocabulary.size
    save_vocabulary(vocabulary, place / "saved", 64)
    yield "ids"


def _build_models(good: Path) -> None:
    torch.set_num_threads(1)
    _build_tokenizers(good)
    for name, kind in zip(("roberta_tiny", "bert_tiny", "albert_tiny"), KINDS):
        vocabulary = read_vocabulary(good / kind)
        model = build_model(recipe(name), seed=0)
        assert vocabulary.size <= model.config.vocab_size
        write_folder(model, good / kind, good / name)


def _models_case(good: Path, random: Random, place: Path) -> Iterator[str]:
    torch.set_num_threads(1)
    folders = [good / name for name in ("roberta_tiny", "bert_tiny", "albert_tiny")]
    folder = random.choice(folders)
    shutil.copytree(folder, place, dirs_exist_ok=True)
    (place / CONFIG).write_bytes(json_mutated((folder / CONFIG).read_bytes(), random))
    load_folder(place)
    yield "model"


# --- Checkpoints


def _checkpoint_case(good: Path, random: Random, place: Path) -> Iterator[str]:
    directory = good / "checkpoints" / step_name(3)
    shutil.copytree(directory, place, dirs_exist_ok=True)
    name = random.choice((STATE, INDEX))
    values = json.loads((place / name).read_bytes())
    values.pop("xxh3_64", None)
    changed = value_mutated(values, random)
    sealed = isinstance(changed, dict) and random.random() < 0.9
    try:
        write = seal if name == STATE else as_json
        content = write(changed) if sealed else json_mutated(as_json(values), random)
    except ValueError:  # a NaN cannot be sealed
        content = as_json(changed)
    (place / name).write_bytes(content)
    if name != STATE:
        state = json.loads((directory / STATE).read_bytes())
        state.pop("xxh3_64")
        state["index"] |= {"bytes": len(content), "xxh3_64": hash_file(place / name)}
        (place / STATE).write_bytes(seal(state))
    checkpoint = open_checkpoint(place)
    for parameter, weight in checkpoint.weights():
        checkpoint.read(parameter, 0, weight.numel())
    yield "state"


# --- Shards


def _run(main: Callable[[], None], *arguments: object) -> None:
    with patch.object(sys, "argv", ["fuzz", *map(str, arguments)]):
        main()


PREPARED = {
    "rows": ("roberta_tiny", "data.duplicates=2"),
    "pairs": ("bert_tiny", "data.duplicates=2"),
    "order": ("albert_tiny", "data.duplicates=2", "--compression", "zstd"),
    "drawn": ("roberta_tiny", "data.duplicates=0", "--set", "data.mask_mode=per-epoch"),
}
"""Name of a prepared directory -> recipe, a setting, arguments: every column occurs."""


def _build_shards(good: Path) -> None:
    good.mkdir()
    (good / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    for name, (of, *arguments) in PREPARED.items():
        data = recipe(of).data
        tokenizer = good / f"{name}-tokenizer"
        options = {"lower_case": data.lower_case}
        found = train_vocabulary(data.tokenizer, lambda: iter(TEXTS), 320, **options)
        save_vocabulary(found, tokenizer, 64)
        _run(
            prepare.main, "--corpus", "own", "--input", good / "in.jsonl", "--recipe", of,
            "--tokenizer", tokenizer, "--output", good / name, "--workers", 1, "--set", *arguments,
        )  # fmt: skip


def _read_shards(place: Path, random: Random) -> Iterator[str]:
    """Verify all of a directory, or else only load it, so that the loader's own checks answer."""
    if random.random() < 0.4:
        _run(inspect.main, place, "--verify", "--workers", 1)
        yield "verified"
    dataset = Dataset.open(place)
    manifest = dataset.manifest
    loader = Loader(
        [dataset],
        Order(kind="sequential", seed=3, piece_rows=(dataset.piece_rows,)),
        Share(sequences=64, per_device=16),
        reader="mmap" if manifest.compression == "none" and random.random() < 0.5 else "read",
        form=BatchForm(
            capacity=random.choice((None, Capacity(4096, 4096, 64, 4096))),
            attention=random.choice(("row", "document")),
            extras=Extras(most_targets=random.choice((0, 20))),
        ),
    )
    size = manifest.tokenizer["size"]
    for batch in loader.micro_batches():
        assert int(batch.input_ids.min()) >= 0 and int(batch.input_ids.max()) < size
        assert int(batch.labels.min()) >= 0 and int(batch.labels.max()) < size
        assert int(batch.positions.max()) < batch.input_ids.numel()
        assert batch.pair_labels is None or set(batch.pair_labels.tolist()) <= {-1, 0, 1}
    yield "batches"


def _manifest_case(good: Path, random: Random, place: Path) -> Iterator[str]:
    directory = good / random.choice(list(PREPARED))
    shutil.copytree(directory, place, dirs_exist_ok=True)
    content = json_mutated((directory / MANIFEST).read_bytes(), random)
    (place / MANIFEST).write_bytes(content)
    yield from _read_shards(place, random)


def _shards_case(good: Path, random: Random, place: Path) -> Iterator[str]:
    directory = good / random.choice(list(PREPARED))
    shutil.copytree(directory, place, dirs_exist_ok=True)
    manifest = json.loads((directory / MANIFEST).read_bytes())
    shard = random.choice(manifest["shards"])
    entry = random.choice((shard, shard, *shard["masks"]))
    path = place / entry["file"]
    content = path.read_bytes()
    footer = int.from_bytes(content[-10:-6], "little") + 10
    body, end = content[8:-footer], content[-footer:]
    kind = random.choice(("column", "column", "column", "body", "body", "shifted", "footer"))
    if kind == "column" and manifest["compression"] == "none":
        content = column_mutated(directory / entry["file"], random)
    elif kind == "footer":
        content = content[:-footer] + bytes_mutated(end[:-10], random, same_size=True)
        content += end[-10:]
    else:
        content = content[:8] + bytes_mutated(body, random, same_size=kind != "shifted") + end
    path.write_bytes(content)
    entry |= {"bytes": path.stat().st_size, "xxh3_64": hash_file(path)}
    (place / MANIFEST).write_bytes(as_json(manifest))
    yield from _read_shards(place, random)


def _nothing(good: Path) -> None:
    good.mkdir()


TARGETS = {
    target.name: target
    for target in (
        Target("shards", _build_shards, _shards_case),
        Target("manifest", _build_shards, _manifest_case),
        Target("checkpoint", lambda good: save(good, 3, 2), _checkpoint_case),
        Target("tokenizer", _build_tokenizers, _tokenizer_case),
        Target("config", _build_models, _models_case),
        Target("report", build_report, report_case),
        Target("scores", _nothing, scores_case),
        Target("tasks", _nothing, tasks_case),
        Target("arms", _nothing, arms_case),
        Target("lists", _nothing, lists_case),
        *(Target(name, _nothing, partial(_corpus_case, name)) for name in CORPORA),
    )
}

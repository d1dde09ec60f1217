"""Shards, runs and exports that are recorded as fixtures, and how results are measured.

`record.py` writes the fixtures, `test_recorded.py` compares with them. Only commands and public
readers are used, so that moving a module does not touch this file.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq
import torch
import transformers

from pipeline import prepare
from tests.launching import process

GOLDEN = Path(__file__).parent
TOKENIZERS, RUNS, EXPORTS = GOLDEN / "tokenizers", GOLDEN / "runs", GOLDEN / "exports"
VOCAB_SIZE = 512

TRAINED = {
    "byte-bpe": "roberta_tiny", "wordpiece-cased": "spanbert_tiny",
    "wordpiece-uncased": "bert_tiny", "unigram": "albert_tiny",
}  # fmt: skip
"""Tokenizers, and a recipe that trains each."""

CELLS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "roberta": ("roberta_tiny", "byte-bpe", ()),
    "bert": ("bert_tiny", "wordpiece-uncased", ()),
    "albert": ("albert_tiny", "unigram", ()),
    "electra": (
        "electra_tiny", "wordpiece-uncased",
        ("data.mask_mode=per-epoch", "data.duplicates=0"),
    ),
    "spanbert": ("spanbert_tiny", "wordpiece-cased", ()),
    "modernbert": ("modernbert_tiny", "byte-bpe", ("data.masks.rate=0.3",)),
    "doc_sentences": (
        "roberta_tiny", "byte-bpe",
        ("data.format=doc_sentences", "data.masking=whole_word", "data.mask_mode=static",
         "data.duplicates=1"),
    ),
    "sentence_pair": (
        "bert_tiny", "wordpiece-cased",
        ("data.format=sentence_pair", "data.segments.draws=2", "data.masking=ngram",
         "data.lower_case=false"),
    ),
}  # fmt: skip
"""Recipe, tokenizer and settings of some shards. Every row format, mask scheme and kind of
tokenizer is in at least one; the first six are what the families train on."""

FAMILIES = ("roberta", "bert", "albert", "electra", "spanbert", "modernbert")
STEPS, SAVED = 20, 10
SETTINGS: dict[str, object] = {
    "encoder.layers": 2, "encoder.width": 16, "encoder.heads": 2, "encoder.feed_forward": 32,
    "encoder.dropout": 0.1, "encoder.attention_dropout": 0.1,
    "encoder.initializer_range": 0.2,
    "optimizer.kind": "lamb", "optimizer.peak_lr": 0.02,
    "batch.sequences": 16, "batch.per_device": 8, "steps": STEPS, "schedule.warmup_steps": 2,
    "validation.every": STEPS, "checkpoint.every": SAVED, "logging.every": 1,
}  # fmt: skip
"""Settings of a run of a second or two with a small checkpoint."""
FAMILY_SETTINGS: dict[str, dict[str, object]] = {
    "albert": {"encoder.embedding_width": 8},
    "electra": {
        "encoder.embedding_width": 8,
        "objective.generator.layers": 0.5,
        "objective.generator.width": 0.5,
    },
    "modernbert": {
        "encoder.layers": 4, "encoder.window": 8, "encoder.initializer_range": 0.05,
        "optimizer.kind": "stable_adamw", "optimizer.peak_lr": 0.01,
    },
}  # fmt: skip
"""What a family needs, or has of its own: two of ModernBERT's four layers have a window."""

COUNTS = ("sequences", "tokens", "predictions")
"""Metrics that are recorded beside losses."""


def call(main: Callable[[], None], *arguments: object) -> None:
    """A command in this process."""
    with patch.object(sys, "argv", ["command", *map(str, arguments)]):
        main()


def prepared(cell: str, output: Path) -> Path:
    """The sample as the shards of a cell."""
    recipe, tokenizer, settings = CELLS[cell]
    sizes = (f"data.vocab_size={VOCAB_SIZE}", "data.duplicates=2")
    changes = [word for text in (*sizes, *settings) for word in ("--set", text)]
    call(
        prepare.main, "--corpus", "sample", "--recipe", recipe, "--workers", 1,
        "--tokenizer", TOKENIZERS / tokenizer, "--output", output, *changes,
    )  # fmt: skip
    return output


def files(directory: Path, manifest: dict[str, Any]) -> Iterator[tuple[str, Path]]:
    """Files of shards in order, each with its content: split, then rows or the mask's number.

    The only function that knows the layout of shards.
    """
    for shard in manifest["shards"]:
        yield f"{shard['split']} rows", directory / shard["file"]
        for number, mask in enumerate(shard["masks"]):
            yield f"{shard['split']} mask-{number}", directory / mask["file"]


def described(directory: Path) -> dict[str, Any]:
    """Recorded of shards: fingerprint, versions, rows of each shard, hashes of columns."""
    manifest = json.loads((directory / "manifest.json").read_bytes())
    tables: dict[str, list[pa.Table]] = {}
    for name, path in files(directory, manifest):
        with pa.memory_map(str(path)) as source:
            tables.setdefault(name, []).append(pa.ipc.open_file(source).read_all())
    found = {
        f"{name} {column}": _hash(pa.chunked_array([c for t in parts for c in t[column].chunks]))
        for name, parts in tables.items()
        for column in parts[0].column_names
    }
    documents = pq.read_table(directory / "documents.parquet")
    found |= {f"documents {name}": _hash(documents[name]) for name in documents.column_names}
    return {
        "fingerprint": manifest["fingerprint"],
        "versions": {name: manifest["engine"][name] for name in manifest["engine"]},
        "tokenizer": manifest["tokenizer"]["sha256"],
        "rows": {
            name: [len(part) for part in parts] for name, parts in tables.items() if "rows" in name
        },
        "columns": found,
    }


def _hash(column: pa.ChunkedArray) -> str:
    """The type of a column, and a hash of its values, whatever chunks they are in."""
    digest = hashlib.sha256()
    _feed(digest, column.combine_chunks())
    return f"{column.type} {digest.hexdigest()[:32]}"


def _feed(digest: Any, array: pa.Array) -> None:
    """Add an array's values, and the lengths of its lists, to a hash."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    digest.update(array.is_valid().to_numpy(zero_copy_only=False).tobytes())
    array = array.drop_null()
    if pa.types.is_list(array.type):
        _feed(digest, array.value_lengths())
        _feed(digest, array.flatten())
    elif pa.types.is_binary(array.type) or pa.types.is_string(array.type):
        _feed(digest, pc.binary_length(array))
        digest.update(b"".join(value.as_buffer() for value in array))
    else:
        digest.update(np.ascontiguousarray(array.to_numpy(zero_copy_only=False)).tobytes())


def run_arguments(family: str, shards: Path, output: Path, *extra: object) -> list[str]:
    """The arguments of pipeline.train for the run of a family."""
    parts = [CELLS[family][0], "--data", shards, "--output", output, *extra]
    sizes = {"data.vocab_size": VOCAB_SIZE, "data.duplicates": 2}
    chosen = sizes | SETTINGS | FAMILY_SETTINGS.get(family, {})
    changes = [*(f"{name}={value}" for name, value in chosen.items()), *CELLS[family][2]]
    return [*map(str, parts), *(word for text in changes for word in ("--set", text))]


def lesson(shards: Path, target: Path | None = None) -> Path:
    """The same shards for runs, with the two smallest held-out shards, so that validation is fast.

    Shards and their rows are in the order of the manifest's corpora.
    """
    target = target or shards.with_name(f"{shards.name}-lesson")
    shutil.copytree(shards, target, copy_function=os.link)
    path = target / "manifest.json"
    manifest = json.loads(path.read_bytes())
    held_out = [shard for shard in manifest["shards"] if shard["split"] == "validation"]
    gone = sorted(held_out, key=lambda shard: shard["sequences"])[2:]
    manifest["shards"] = [shard for shard in manifest["shards"] if shard not in gone]
    for corpus in manifest["corpora"].values():
        left = corpus["validation_sequences"]
        while left:
            shard = held_out.pop(0)
            left -= shard["sequences"]
            if shard in gone:
                corpus["validation_sequences"] -= shard["sequences"]
                corpus["sequences"] -= shard["sequences"]
    path.unlink()
    path.write_text(json.dumps(manifest))
    return target


def command(name: str, *words: object, ranks: int = 1, **environment: str) -> str:
    """What `python -m pipeline.NAME WORDS...` prints, with one thread; it must succeed."""
    done = ended(name, *words, ranks=ranks, **environment)
    assert done.returncode == 0, f"{name} ended with {done.returncode}: {done.stderr}"
    return done.stdout


def ended(
    name: str, *words: object, ranks: int = 1, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The same with any exit code."""
    launcher = ("-m", "tests.launching.ranks", ranks) if ranks > 1 else ()
    return process.run(
        [sys.executable, *launcher, "-m", f"pipeline.{name}", *words],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
    )


def losses(run: Path) -> dict[str, dict[str, float]]:
    """Losses of a run by step, of training and validation, with their counts."""
    found: dict[str, dict[str, float]] = {}
    path = run / "metrics.jsonl"
    for line in path.read_text().splitlines() if path.exists() else ():
        values = json.loads(line)
        found.setdefault(str(values["step"]), {}).update(
            (name, value)
            for name, value in values.items()
            if name in COUNTS or (name.endswith("loss") and value is not None)
        )
    return found


def logits(folder: Path) -> dict[str, list[list[float]]]:
    """A few logits for one row of ids from an export's models in transformers."""
    ids = torch.arange(5, VOCAB_SIZE, 37)[None]
    found = {}
    for config in sorted(folder.rglob("config.json")):
        kind = getattr(transformers, json.loads(config.read_bytes())["architectures"][0])
        model, report = kind.from_pretrained(config.parent, output_loading_info=True)
        # a class for masked words has no pooler, as for published folders
        assert not {n for names in report.values() for n in names if ".pooler." not in n}, report
        with torch.no_grad():
            outputs = model.eval()(ids)
        for name, values in outputs.items():
            values = values.reshape(-1, values.shape[-1])[:, :6]
            found[f"{kind.__name__} {name}"] = values.double().tolist()
    return found

"""Compile the numerical kernels ahead of the first start: `tenfold compile`.

Numba compiles a kernel when it is first called and keeps the result in the directory that
`pipeline.kernels.cache` sets. So this calls all of them: it prepares a few documents with each
tokenizer, format and mask scheme in a temporary directory, reads the shards as training does, and
updates a small tensor. Without torch it only compiles the kernels of preparing.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pipeline.base.progress import tracked
from pipeline.kernels.cache import FIRST_COMPILATION

DOCUMENTS = 12
MICRO_BATCHES = 4
"""Micro-batches read of each run's shards: two steps."""
RUNS = {
    "roberta": ("roberta_tiny", ()),
    "zstd": ("roberta_tiny_published", ("--compression", "zstd", "--dedup", "exact")),
    "bert": ("bert_tiny", ()),
    "whole_word": ("bert_tiny", ("--set", "data.masking=whole_word")),
    "albert": ("albert_tiny", ()),
    "electra": ("electra_tiny", ()),
    "spanbert": ("spanbert_tiny", ()),
    "per-epoch": ("spanbert_tiny_published", ()),
}
"""Folder -> a recipe and options of `prepare`: each tokenizer, format, mask and --dedup once."""


def compile_kernels() -> None:
    """Compile all kernels that are not in the cache; warns if the cache is not writable."""
    FIRST_COMPILATION.announce()
    # restored below, as the commands are called in this process
    arguments, root = sys.argv, os.environ.get("TENFOLD_ROOT")
    try:
        with tempfile.TemporaryDirectory() as directory:
            os.environ["TENFOLD_ROOT"] = directory
            folder = Path(directory)
            _prepare(folder)
            if find_spec("torch"):
                from pipeline.training.optimizer.cpu_update import compile_all

                for name, (recipe_name, _) in RUNS.items():
                    _load(folder / name, recipe_name)
                compile_all()
    except (OSError, RuntimeError) as error:
        # numba raises RuntimeError if it has no writable directory
        print(
            f"warning: kernels are not stored: {error}; each start will compile them",
            file=sys.stderr,
        )
    finally:
        sys.argv = arguments
        os.environ.pop("TENFOLD_ROOT", None)
        if root is not None:
            os.environ["TENFOLD_ROOT"] = root


def _prepare(folder: Path) -> None:
    """Prepare a few stories of the sample for each of RUNS, and verify the shards."""
    import pipeline.inspect
    import pipeline.prepare

    stories = Path(__file__).parent / "ingest" / "corpora" / "sample" / "stories" / "stories.jsonl"
    # the last story is the one to decontaminate against
    lines = stories.read_text(encoding="utf-8").splitlines(keepends=True)[: DOCUMENTS + 1]
    corpus, evaluation = folder / "stories.jsonl", folder / "evaluation.jsonl"
    corpus.write_text("".join(lines[:-1]), encoding="utf-8")
    evaluation.write_text(lines[-1], encoding="utf-8")
    for name, (recipe_name, options) in tracked(RUNS.items(), "compiling", "recipes"):
        said = io.StringIO()  # bars of these small runs would be the only thing to see
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            sys.argv = [
                "prepare", "--corpus", str(corpus), "--recipe", recipe_name, "--workers", "1",
                "--output", str(folder / name), "--dedup", "near",
                # near, repetitions and --decontaminate have kernels of their own
                "--filter", "min-words=3", "gopher-repetition",
                "--decontaminate", str(evaluation), "--set", "data.vocab_size=700", *options,
            ]  # fmt: skip
            pipeline.prepare.main()
            sys.argv = ["inspect", str(folder / name), "--verify"]
            pipeline.inspect.main()


def _load(shards: Path, recipe_name: str) -> None:
    """Read a step of prepared shards in every order and with every attention."""
    from pipeline.config.formats import Attention
    from pipeline.loading.dataset import Dataset
    from pipeline.loading.loader import Loader
    from pipeline.loading.micro_batch import BatchForm
    from pipeline.loading.order import Order, Share
    from pipeline.recipes import recipe
    from pipeline.training.feed import extras_of

    dataset = Dataset.open(shards)
    # compressed shards are read in blocks, not mapped
    in_blocks = dataset.manifest.compression != "none"
    attentions: tuple[Attention, ...] = ("row", "document")
    for attention in attentions:
        kind: Literal["global", "blocks"] = "blocks" if in_blocks else "global"
        loader = Loader(
            [dataset],
            Order(kind=kind, seed=0, piece_rows=(dataset.piece_rows,)),
            Share(sequences=8, per_device=4, rank=0, world_size=1),
            reader="read" if in_blocks else "mmap",
            form=BatchForm(attention=attention, extras=extras_of(recipe(recipe_name))),
        )
        for _ in itertools.islice(loader.micro_batches(), MICRO_BATCHES):  # endless
            pass
        loader.close()

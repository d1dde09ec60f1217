"""Inspect shards or documents: `python -m pipeline.inspect PATH [--sequence I] [--verify]`.

Shows sequences as the encoder sees them, their masks side by side, and statistics over all rows.
`--verify` reads every byte, checks the hashes and draws every mask again, on all cores, or on the
ranks of an MPI job under srun or mpiexec. If the loader draws masks while it reads, those of the
first ten epochs are drawn and shown.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pipeline.base.errors import ConfigError
from pipeline.data.inspection.inspect_arguments import parse_inspect
from pipeline.data.inspection.inspect_documents import holds_documents, inspect_documents
from pipeline.data.inspection.inspect_shards import inspect_shards
from pipeline.data.inspection.path_kinds import kind_of
from pipeline.data.preparation.tokenizer_training import REPORT_BYTES
from pipeline.data.selection.sample import sample_texts
from pipeline.data.text.documents import DocumentCounts
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.quality import report_quality
from pipeline.execution.mpi import run_together, spread
from pipeline.execution.workers import Executor
from pipeline.ingest.corpora.sources import corpus_sources


def main() -> None:
    spread(parse_inspect, inspect, instead="start one process", announced=False)


def inspect(arguments: argparse.Namespace, executor: Executor) -> None:
    """Print what a path holds; `executor` verifies shards."""
    directory: Path = arguments.directory
    if kind := kind_of(directory):
        print(f"{directory}: {kind}")
    elif holds_documents(directory):
        inspect_documents(arguments)
    else:
        check_options(arguments)
        if (directory / "tokenizer.json").exists():
            print_tokenizer(directory)
        else:
            inspect_shards(arguments, executor)


def check_options(arguments: argparse.Namespace) -> None:
    """Raises ConfigError for options that are for documents only."""
    given = (arguments.corpus, arguments.map, arguments.filter)
    if any(given) or arguments.decisions is not None:
        raise ConfigError(
            "--corpus, --decisions, --map and --filter are for documents; "
            f"{arguments.directory} has none"
        )


def print_tokenizer(directory: Path) -> None:
    """Print how a tokenizer encodes the sample corpus."""
    vocabulary = read_vocabulary(directory)
    _, sources = corpus_sources("sample", [])
    case = "uncased" if vocabulary.lower_case else "cased"
    print(f"{directory}: {vocabulary.kind}, {case}, {vocabulary.size:,} ids; on the sample corpus:")
    for line in report_quality(vocabulary, sample_texts(sources, REPORT_BYTES, DocumentCounts())):
        print(f"  {line}")


if __name__ == "__main__":
    run_together(main)
    sys.exit(0)

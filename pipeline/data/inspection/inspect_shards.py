"""Inspect shards: recipe, corpora, masks, rows and one sequence; with --verify also every byte.

If the loader draws masks while it reads, those of the first ten epochs are drawn and shown.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from pipeline.data.inspection.sequences import PAIRS, locate, print_documents, print_sequence
from pipeline.data.rows.masks import KEPT, MASK, RANDOM
from pipeline.data.shards.corpus_warnings import describe_unknown
from pipeline.data.shards.manifest import (
    TRAIN,
    VALIDATION,
    Manifest,
    check_size,
    read_manifest,
)
from pipeline.data.shards.predicted import describe_predicted
from pipeline.data.shards.row_statistics import Statistics, measure_rows, read_masks
from pipeline.data.shards.verify import read_tokenizer, verify
from pipeline.execution.workers import Executor
from pipeline.ingest.corpora.sources import describe_counts, describe_cut

MOST_CORPORA = 32
"""Corpora that are listed: of thousands of languages the largest."""


def inspect_shards(arguments: argparse.Namespace, executor: Executor) -> None:
    """Print what shards hold; first verify them, if that is asked for.

    executor: verifies. Raises DataError for missing or damaged files, and ConfigError for a
    sequence that is not there.
    """
    directory: Path = arguments.directory
    manifest = read_manifest(directory)
    split = arguments.split or (TRAIN if manifest.of(TRAIN) else VALIDATION)
    shard, row = locate(manifest, split, arguments.sequence)
    if arguments.verify:  # first, so that no damaged row is shown as valid
        vocabulary = verify(directory, manifest, executor)
    else:
        check_file_sizes(directory, manifest)
        vocabulary = read_tokenizer(directory, manifest)
    print_summary(directory, manifest)
    tokenizer = Tokenizer.from_str(vocabulary.tokenizer_json)
    mask = str(tokenizer.id_to_token(vocabulary.mask))
    print_statistics(measure_rows(directory, manifest, vocabulary), manifest, mask)
    title = f"sequence {arguments.sequence} of {split}"
    masks = read_masks(directory, manifest, shard, vocabulary, row)
    print_sequence(directory, shard, row, masks, title, tokenizer, vocabulary, arguments.tokens)
    print_documents(directory, shard, row)
    if arguments.verify:
        files = len(manifest.files) + sum(len(member.files()) for member in manifest.shards)
        print(f"\nverified: {files} files match their hashes, ", end="")
        if manifest.takedowns:
            print("but documents were taken down by 0.2.0: rows and masks are not checked")
        else:
            print(
                f"{manifest.totals['sequences']:,} rows are well formed, masks match their keys "
                f"({_masks_in_words(manifest)})"
            )


def check_file_sizes(directory: Path, manifest: Manifest) -> None:
    """Raises DataError for the first file that is missing or has another size."""
    for name, entry in manifest.files.items():
        check_size(directory, name, entry["bytes"])
    for file in (file for member in manifest.shards for file in member.files()):
        check_size(directory, file.file, file.bytes)


def print_summary(directory: Path, manifest: Manifest) -> None:
    """Print the directory's recipe, size and corpora, and what was dropped."""
    totals = manifest.totals
    size = sum(shard.bytes for shard in manifest.shards)
    masks = sum(mask.bytes for shard in manifest.shards for mask in shard.masks)
    print(f"{directory}")
    print(
        f"  recipe {manifest.engine['recipe']}, fingerprint {manifest.fingerprint}, "
        f"seed {manifest.seed}"
    )
    print(
        f"  tokenizer {manifest.tokenizer['kind']}, {manifest.tokenizer['size']:,} ids; "
        f"ids by {manifest.engine['ids']}"
    )
    print(
        f"  {totals['documents']:,} documents, {totals['sequences']:,} sequences, "
        f"{totals['tokens']:,} tokens; {len(manifest.shards)} shards, "
        f"{size / totals['tokens']:.2f} bytes per token, {_masks_in_words(manifest)} "
        f"{masks / totals['tokens']:.2f}"
    )
    if len(manifest.corpora) > MOST_CORPORA:
        print(f"  {len(manifest.corpora):,} corpora, the largest of which are:")
    by_size = sorted(manifest.corpora, key=lambda name: -manifest.corpora[name]["tokens"])
    largest = set(by_size[:MOST_CORPORA])
    for name, corpus in manifest.corpora.items():
        if name not in largest:
            continue
        dropped = corpus["dropped"] | corpus["bad"]
        words = f"{corpus['words']:>10,} words " if "words" in corpus else ""
        print(
            f"  {name:12} {corpus['documents']:>6,} documents {words}{corpus['sequences']:>8,} "
            f"sequences ({corpus['validation_sequences']:,} held out) {corpus['tokens']:>10,} "
            f"tokens, dropped: {describe_counts(dropped) or 'nothing'}"
        )
        if "language" in corpus:
            print(f"  {'':12} language: {corpus['language']}")
        if corpus["cut"]:
            print(f"  {'':12} cut from documents: {describe_cut(corpus['cut'])}")
        if corpus["noted"]:
            print(f"  {'':12} kept: {describe_counts(corpus['noted'])}")
        if unknown := describe_unknown(corpus):
            print(f"  {'':12} {unknown}")
        packed = corpus["packed"]
        if packed["dropped_tokens"] or packed["repeated_tokens"]:
            print(
                f"  {'':12} of {packed['text_tokens']:,} text tokens {packed['dropped_tokens']:,} "
                f"are in no sequence, {packed['repeated_tokens']:,} are repeated"
            )


def print_statistics(statistics: Statistics, manifest: Manifest, mask: str) -> None:
    """Print rates, lengths and fill next to the recipe's values; mask: the mask token."""
    lengths, total = statistics.lengths, statistics.actions.sum(0)
    rates = statistics.predictions / max(1, statistics.text_tokens)
    split = manifest.masking["split"]
    print("\nmasks")
    print(
        f"  predicted    {rates.mean():.4%} of text tokens (recipe {manifest.masking['rate']:.2%}, "
        f"whole tokens per row), duplicates {rates.min():.4%} to {rates.max():.4%}"
    )
    for warning in describe_predicted(rates.mean(), manifest)[1:]:
        print(f"  {warning}")
    if manifest.masking["scheme"] != "token":
        print(
            f"  scheme       {manifest.masking['scheme']}, on average "
            f"{total.sum() / max(1, statistics.runs):.2f} predicted tokens without a gap"
        )
    if total.sum():
        shares = total / total.sum()
        print(
            f"  of which     {shares[MASK]:.2%} {mask}, {shares[RANDOM]:.2%} random, "
            f"{shares[KEPT]:.2%} kept (recipe {split[0]:.0%}, {split[1]:.0%}, {1 - sum(split):.0%})"
        )
    length = manifest.sequence_length
    print("rows")
    print(
        f"  fill         {lengths.sum() / (len(lengths) * length):.2%} of {length} tokens per row; "
        f"shortest {lengths.min()}, median {int(np.median(lengths))}, longest {lengths.max()}"
    )
    print(
        f"  documents    {statistics.documents.mean():.2f} per row; "
        f"{np.mean(statistics.documents > 1):.1%} of rows cross a document's end"
    )
    rows = len(lengths)
    if any(statistics.pairs.values()):
        single = rows - sum(statistics.pairs.values())
        named = [f"{count / rows:.1%} {PAIRS[kind]}" for kind, count in statistics.pairs.items()]
        print(f"  pairs        {', '.join(named)}; {single / rows:.1%} have one segment")
    if statistics.coins:
        print(f"  order        {statistics.swapped / statistics.coins:.2%} show B before A")
    edges = np.linspace(0, length, 9).astype(int)
    counts = np.histogram(lengths, bins=np.append(edges[:-1], length + 1))[0]
    for low, high, count in zip(edges, edges[1:], counts):
        bar = "█" * round(40 * count / counts.max())
        print(f"  {low + (low > 0):>5} - {high:<5}{count:>10,} {bar}")


def _masks_in_words(manifest: Manifest) -> str:
    if manifest.duplicates:
        return f"{manifest.duplicates} masks"
    return "masks drawn every epoch, one stored for validation"

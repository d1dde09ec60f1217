"""Inspect shards or documents: `python -m pipeline.inspect PATH [--sequence I] [--verify]`.

Shows sequences as the encoder sees them, their masks side by side, and statistics over all rows.
`--verify` reads every byte, checks the hashes and draws every mask again. If the loader draws masks
while it reads, those of the first ten epochs are drawn and shown.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from pipeline.base.command_line import Parser, add_reading_arguments, example_text
from pipeline.base.errors import ConfigError, DataError, run_command
from pipeline.data.corpora.sources import corpus_sources, describe_counts, describe_cut
from pipeline.data.inspection.documents import holds_documents, inspect_documents
from pipeline.data.inspection.places import describe_place
from pipeline.data.preparation.tokenizer import REPORT_BYTES, sample_texts
from pipeline.data.rows.masks import KEPT, MASK, RANDOM
from pipeline.data.rows.segment_rows import IN_ORDER, RANDOM_NEXT, UNLABELLED
from pipeline.data.shards import arrow_files
from pipeline.data.shards.manifest import (
    TRAIN,
    VALIDATION,
    Manifest,
    Shard,
    check_size,
    describe_copies,
    describe_unknown,
    read_manifest,
)
from pipeline.data.shards.predicted import describe_predicted
from pipeline.data.shards.statistics import Drawn, Ragged, Statistics, measure, read_masks
from pipeline.data.shards.verify import verify
from pipeline.data.text.documents import DocumentCounts
from pipeline.data.tokenizers.definitions import UNIGRAM
from pipeline.data.tokenizers.folders import read_vocabulary
from pipeline.data.tokenizers.report import report
from pipeline.data.tokenizers.vocabulary import Vocabulary

_CELLS = {-1: "·", MASK: "M", RANDOM: "R", KEPT: "K"}
_PAIRS = {
    IN_ORDER: "A and B in order",
    RANDOM_NEXT: "B of another document",
    UNLABELLED: "no label",
}
_LEGEND = "M {mask}  R random id  K kept, but predicted  · not predicted"


def main() -> None:
    arguments = _parse()
    directory: Path = arguments.directory
    if lines := describe_place(directory):
        print("\n".join(lines))
        return
    if holds_documents(directory):
        inspect_documents(arguments)
        return
    if arguments.html or arguments.corpus or arguments.decisions is not None:
        raise ConfigError(
            f"--html, --corpus and --decisions are for documents; {directory} has none"
        )
    if (directory / "tokenizer.json").exists():
        print_tokenizer(directory)
        return
    manifest = read_manifest(directory)
    split = arguments.split or (TRAIN if manifest.of(TRAIN) else VALIDATION)
    shard, row = _locate(manifest, split, arguments.sequence)
    for name, entry in manifest.files.items():
        check_size(directory, name, entry["bytes"])
    for file in (file for member in manifest.shards for file in member.files()):
        check_size(directory, file.file, file.bytes)
    vocabulary = read_vocabulary(directory / "tokenizer")
    if vocabulary.sha256 != manifest.tokenizer["sha256"]:
        raise DataError(
            f"{directory / 'tokenizer'} is not the tokenizer these shards were made with (sha256 "
            f"{vocabulary.sha256[:12]}, the manifest says {manifest.tokenizer['sha256'][:12]}); "
            "copy it again"
        )
    if arguments.verify:  # first, so that no damaged row is shown as valid
        verify(directory, manifest, vocabulary)
    print_summary(directory, manifest)
    tokenizer = Tokenizer.from_str(vocabulary.tokenizer_json)
    mask = str(tokenizer.id_to_token(vocabulary.mask))
    print_statistics(measure(directory, manifest, vocabulary), manifest, mask)
    title = f"sequence {arguments.sequence} of {split}"
    masks = list(read_masks(directory, manifest, shard, vocabulary))
    print_sequence(directory, shard, row, masks, title, tokenizer, vocabulary, arguments.tokens)
    if arguments.verify:
        files = len(manifest.files) + sum(len(member.files()) for member in manifest.shards)
        print(
            f"\nverified: {files} files match their hashes, {manifest.totals['sequences']:,} rows "
            f"are well formed, masks match their keys ({_masks_in_words(manifest)})"
        )


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
    for takedown in manifest.takedowns:
        print(
            f"  taken down from {takedown['parent']}: {sum(takedown['documents'].values()):,} "
            f"documents, {takedown['tokens']:,} tokens in {takedown['sequences']:,} sequences"
        )
    for name, corpus in manifest.corpora.items():
        dropped = corpus["dropped"] | corpus["bad"]
        print(
            f"  {name:12} {corpus['documents']:>9,} documents {corpus['sequences']:>9,} sequences "
            f"({corpus['validation_sequences']:,} held out) {corpus['tokens']:>13,} tokens, "
            f"dropped: {describe_counts(dropped) or 'nothing'}"
        )
        if corpus["cut"]:
            print(f"  {'':12} cut from documents: {describe_cut(corpus['cut'])}")
        if corpus["noted"]:
            print(f"  {'':12} kept: {describe_counts(corpus['noted'])}")
        if unknown := describe_unknown(corpus):
            print(f"  {'':12} {unknown}")
        if copies := describe_copies(corpus):
            print(f"  {'':12} {copies}")
        packed = corpus["packed"]
        if packed["dropped_tokens"] or packed["repeated_tokens"]:
            print(
                f"  {'':12} of {packed['text_tokens']:,} text tokens {packed['dropped_tokens']:,} "
                f"are in no sequence, {packed['repeated_tokens']:,} are repeated"
            )


def print_statistics(statistics: Statistics, manifest: Manifest, mask: str) -> None:
    """Print rates, lengths and fill beside the recipe's values; mask: the mask token."""
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
        named = [f"{count / rows:.1%} {_PAIRS[kind]}" for kind, count in statistics.pairs.items()]
        print(f"  pairs        {', '.join(named)}; {single / rows:.1%} have one segment")
    if statistics.coins:
        print(f"  order        {statistics.swapped / statistics.coins:.2%} show B before A")
    edges = np.linspace(0, length, 9).astype(int)
    counts = np.histogram(lengths, bins=np.append(edges[:-1], length + 1))[0]
    for low, high, count in zip(edges, edges[1:], counts):
        bar = "█" * round(40 * count / counts.max())
        print(f"  {low + (low > 0):>5} - {high:<5}{count:>10,} {bar}")


def print_sequence(
    directory: Path,
    shard: Shard,
    row: int,
    masks: list[Drawn],
    title: str,
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    limit: int,
) -> None:
    """Print one row: its text, and the action of each duplicate on each token; limit 0: all."""
    table = arrow_files.read_table(directory / shard.file).slice(row, 1)
    ids = np.array(table["input_ids"][0].as_py())
    starts = table["document_starts"][0].as_py()
    second = table["second_segment"][0].as_py()
    label = table["pair_label"][0].as_py()
    pair = f", {_PAIRS.get(label, f'impossible label {label}')}" if second else ""
    print(
        f"\n{title}: {shard.file} row {row}, id {table['sequence'][0]}, corpus "
        f"{table['corpus'][0]}, {len(ids)} tokens, {len(starts)} document(s){pair}"
    )
    width = max(40, min(shutil.get_terminal_size((100, 20)).columns, 120))
    starts = [0, second] if second else starts
    for number, (start, stop) in enumerate(zip(starts, [*starts[1:], len(ids)])):
        text = " ".join(tokenizer.decode(ids[start:stop].tolist()).split())
        name = f"segment {'AB'[number]}" if second else f"document {number}"
        print(f"  {name}: {_shortened(text, width - 14)}")
    coins = [drawn.swapped[row] for drawn in masks if drawn.swapped is not None]
    if second and coins:
        swapped = " ".join(str(k) for k in np.flatnonzero(coins))
        print(f"  B is shown before A with masks: {swapped or 'none'}")
    grid = np.stack(
        [_row_actions(drawn.positions, drawn.actions, row, len(ids)) for drawn in masks]
    )
    print(f"\n  {_LEGEND.format(mask=tokenizer.id_to_token(vocabulary.mask))}")
    print(f"  {'position  token':<30} " + " ".join(f"{k}" for k in range(len(grid))))
    shown_tokens = len(ids) if limit == 0 else min(limit, len(ids))
    for position in range(shown_tokens):
        token = tokenizer.decode([int(ids[position])], skip_special_tokens=False)
        if vocabulary.special[ids[position]] or vocabulary.kind == UNIGRAM:
            # Decoding would drop unigram's word-start mark.
            token = tokenizer.id_to_token(int(ids[position])) or ""
        mark = "|" if position in starts and position > 0 else " "
        cells = " ".join(_CELLS[int(code)] for code in grid[:, position])
        print(f"  {position:>5} {mark}  {token[:20]!r:<23}{cells}".rstrip())
    if shown_tokens < len(ids):
        print(f"  ... {len(ids) - shown_tokens} more tokens: --tokens 0 shows all")


def print_tokenizer(directory: Path) -> None:
    """Print how a tokenizer encodes the sample corpus."""
    vocabulary = read_vocabulary(directory)
    _, sources = corpus_sources("sample", [])
    case = "uncased" if vocabulary.lower_case else "cased"
    print(f"{directory}: {vocabulary.kind}, {case}, {vocabulary.size:,} ids; on the sample corpus:")
    for line in report(vocabulary, sample_texts(sources, REPORT_BYTES, DocumentCounts())):
        print(f"  {line}")


def _shortened(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    return f"{text[: room // 2 - 2]} ... {text[-room // 2 + 3 :]}"


def _masks_in_words(manifest: Manifest) -> str:
    if manifest.duplicates:
        return f"{manifest.duplicates} masks"
    return "masks drawn every epoch, one stored for validation"


def _row_actions(
    positions: Ragged, actions: Ragged, row: int, tokens: int
) -> npt.NDArray[np.int64]:
    """[tokens] action of each position, -1 where nothing is predicted."""
    bitmap, packed = (
        values[offsets[row] : offsets[row + 1]] for values, offsets in (positions, actions)
    )
    chosen = np.flatnonzero(np.unpackbits(bitmap, bitorder="little")[:tokens])
    codes = np.stack([(packed >> 2 * slot) & 3 for slot in range(4)], 1).ravel()[: len(chosen)]
    found = np.full(tokens, -1)
    found[chosen] = codes
    return found


def _locate(manifest: Manifest, split: str, index: int) -> tuple[Shard, int]:
    count = sum(shard.sequences for shard in manifest.of(split))
    if not 0 <= index < count:
        raise ConfigError(f"--sequence {index}: {split} has {count:,} sequences, counted from 0")
    for shard in manifest.of(split):
        if index < shard.sequences:
            return shard, index
        index -= shard.sequences
    raise AssertionError("index is in no shard")


def _parse() -> argparse.Namespace:
    parser = Parser(
        prog="python -m pipeline.inspect",
        description="Show what PATH holds. Shards: counts, mask rates, lengths, and a sequence "
        "with its masks side by side. A tokenizer: what it does to many scripts. Documents: "
        "samples kept and dropped by reason, lengths, languages, sites, copies. A run, a "
        "checkpoint, a model or a folder of them: what it is, and which commands take it.",
        epilog=example_text(
            "python -m pipeline.inspect data/shards/sample-roberta_tiny-* --verify",
            "python -m pipeline.inspect data/shards/sample-roberta_tiny-* --sequence 7 --tokens 0",
            "python -m pipeline.inspect my-tokenizer",
            "python -m pipeline.inspect news.jsonl --samples 5 --html news.html",
        ),
    )
    parser.add_argument(
        "directory",
        type=Path,
        metavar="PATH",
        help="shards, a tokenizer, documents (raw files, or those of $TENFOLD_ROOT/documents), a "
        "run, a checkpoint or an exported model",
    )
    parser.add_argument(
        "--sequence",
        type=int,
        default=0,
        metavar="I",
        help="shards: the sequence to show (default: 0)",
    )
    parser.add_argument(
        "--split",
        choices=[TRAIN, VALIDATION],
        help="the split of that sequence (default: train, if there is one)",
    )
    parser.add_argument(
        "--tokens",
        type=int,
        default=40,
        metavar="N",
        help="how many of its tokens to show with their masks, 0 for all (default: 40)",
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="shards: read every file, check its hash, redraw every mask and compare",
    )
    parser.add_argument(
        "--corpus",
        default="",
        metavar="NAME",
        help="documents: read them as this corpus or group, as pipeline.prepare does",
    )
    add_reading_arguments(parser)
    parser.add_argument(
        "--samples",
        type=int,
        default=3,
        metavar="N",
        help="documents: how many to show of those kept, and of those dropped for each reason "
        "(default: 3)",
    )
    parser.add_argument(
        "--decisions",
        nargs="?",
        const="",
        metavar="DIR",
        help="documents: also show what --dedup and --filter of pipeline.prepare dropped, and "
        "copies side by side (default: the newest in $TENFOLD_ROOT/documents/decisions); needs "
        "the --corpus and files of that command",
    )
    parser.add_argument(
        "--html", type=Path, metavar="PAGE", help="documents: also write a page for a browser"
    )
    arguments = parser.parse_args()
    if arguments.tokens < 0:
        raise ConfigError(f"--tokens {arguments.tokens}: give a number, or 0 for all")
    if arguments.samples < 0:
        raise ConfigError(f"--samples {arguments.samples}: give a number, or 0 for none")
    return arguments


if __name__ == "__main__":
    run_command(main)
    sys.exit(0)

"""The report on prepared shards: their content, what was dropped, and which commands are next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pipeline.base.command_line import next_lines
from pipeline.data.preparation.prepare_shards import ShardsJob
from pipeline.data.shards.corpus_warnings import describe_unknown
from pipeline.data.shards.manifest import VALIDATION, Manifest
from pipeline.data.shards.predicted import describe_predicted, predicted_share
from pipeline.data.text.documents import UNDO_HTML, WITH_HTML
from pipeline.data.text.excluded import EXCLUDED, load_excluded
from pipeline.data.tokenizers.document_encoder import fast_engine
from pipeline.ingest.corpora.shapes import describe_plain_text
from pipeline.ingest.corpora.sources import describe_counts, describe_cut
from pipeline.ingest.documents.records import PlainText

MOST_LINES = 100
"""About the corpora, which may be thousands of languages."""


def report_result(job: ShardsJob, manifest: Manifest, seconds: float) -> None:
    """Print what was prepared, what was dropped, and what to do next."""
    output, splits = job.output, {source.corpus: source.plain_text for source in job.sources}
    text = sum(corpus["bytes"] for corpus in manifest.corpora.values())
    totals = manifest.totals
    fill = totals["tokens"] / (totals["sequences"] * manifest.sequence_length)
    held_out = sum(shard.sequences for shard in manifest.of(VALIDATION))
    print(
        f"prepared {totals['documents']:,} documents, {manifest.words():,} words, "
        f"{text / 1e6:,.1f} MB of text -> "
        f"{totals['sequences']:,} sequences ({held_out:,} for validation), "
        f"{totals['tokens']:,} tokens, {fill:.1%} full, {manifest.duplicates or 'no'} masks each, "
        f"in {seconds:,.1f} s"
    )
    for line in describe_predicted(predicted_share(manifest), manifest):
        print(f"masks: {line}")
    about = [*_about_corpora(manifest, splits)]
    for line in about[:MOST_LINES]:
        print(line)
    if len(about) > MOST_LINES:
        print(f"... {len(about) - MOST_LINES:,} more such lines: manifest.json has all counts")
    names = len(load_excluded(job.sources[0].rewriting))
    excluded = sum(corpus["dropped"].get(EXCLUDED, 0) for corpus in manifest.corpora.values())
    if excluded < names:
        print(
            f"warning: --exclude names {names:,} documents, {excluded:,} were dropped; a name must "
            "be spelled as id or origin in documents.parquet"
        )
    engine = fast_engine(manifest.tokenizer["kind"]).split()[0]
    for mismatch in manifest.engine["mismatches"]:
        print(f"{engine} differed from tokenizers, which then redid the split: {mismatch}")
    print(f"{output}")
    print("\n".join(next_lines(("inspect", output))))


def _about_corpora(manifest: Manifest, splits: Mapping[str, PlainText]) -> Iterator[str]:
    """Lines about each corpus; splits: how its plain text was split."""
    for name, corpus in manifest.corpora.items():
        dropped = corpus["dropped"] | corpus["bad"]
        if dropped:
            yield f"{name}: dropped {describe_counts(dropped)}"
        for reason, ids in corpus.get("examples", {}).items():
            yield f"{name}: {reason}, such as {', '.join(ids)}"
        if corpus["cut"]:
            yield f"{name}: cut from documents {describe_cut(corpus['cut'])}"
        if corpus["noted"]:
            yield f"{name}: kept {describe_counts(corpus['noted'])}"
            if WITH_HTML in corpus["noted"]:
                yield f"{name}: {UNDO_HTML}"
        if unknown := describe_unknown(corpus):
            yield f"{name}: {unknown}"
        yield from describe_plain_text(name, splits[name], corpus["plain_text"])

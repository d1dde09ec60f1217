"""A text, minimal pairs, sentences with masks -> scores as fields, and tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from model.hugging_face.conversion import Model
from pipeline.base.progress import counting
from pipeline.config.formats import Pll
from pipeline.data.tokenizers.vocabulary import Vocabulary
from pipeline.evaluation.zero_shot.cloze import fill_masks, read_text_lines, report_cloze
from pipeline.evaluation.zero_shot.grammar import (
    GrammarTest,
    count_tokens,
    report_grammar,
    score_grammar,
)
from pipeline.evaluation.zero_shot.grammar_pairs import pairs_hash, read_paradigms
from pipeline.evaluation.zero_shot.pseudo_likelihood import (
    encode_sentences,
    score_pseudo_perplexity,
)
from pipeline.loading.dataset import Dataset


def score_sentences(
    model: Model,
    vocabulary: Vocabulary,
    datasets: Sequence[Dataset],
    device: torch.device,
    *,
    text: Path | None,
    grammar: Path | None,
    cloze: Path | None,
    pll: Pll = "token",
) -> tuple[dict[str, Any], list[str]]:
    """Scores as fields, and tables of the pairs and of the masks; the model is on the device.

    text: lines for pseudo-perplexity; grammar: minimal pairs; cloze: lines with masks; None: not
    scored. datasets: shards to count words in, for the score of word frequencies; pll: the measure
    of the pairs.
    """
    result: dict[str, Any] = {}
    tables = []
    if text:
        lines, positions = read_text_lines(text), model.config.positions
        sequences = encode_sentences(lines, vocabulary, positions)
        result |= score_pseudo_perplexity(model, sequences, vocabulary.mask, device)
    if grammar:
        paradigms = read_paradigms(grammar)
        test = GrammarTest.of(paradigms, vocabulary, model.config.positions, pll)
        # Without shards there is no text to count words in, and the column is omitted.
        counts = count_tokens(datasets, vocabulary.size) if datasets else None
        with counting("scoring", "masked copies") as on_batch:
            scores = score_grammar(model, test, device, counts, on_batch=on_batch)
        # The hash tells which pairs were scored without reading them again.
        result["grammar"] = scores.fields() | {"hash": pairs_hash(paradigms)}
        tables.append(report_grammar(scores))
    if cloze:
        result["cloze"] = fill_masks(model, vocabulary, read_text_lines(cloze), device)
        tables.append(report_cloze(result["cloze"]))
    return result, tables

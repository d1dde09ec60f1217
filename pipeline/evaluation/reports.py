"""The scores of a model -> lines for the terminal, or one JSON object."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from model.hugging_face.loss_record import ENTRY
from pipeline.base.typed_json import as_json
from pipeline.config.mask_rates import at_rate
from pipeline.evaluation.corpus_scores import LANGUAGE, MOST_CORPORA, SHOWN_CORPORA, by_loss
from pipeline.evaluation.held_out import RATE

PARTS = {"pair": "pairs", "sbo": "span boundaries", "rtd": "detection", "words": "restored words"}
"""Parts of the loss besides masked language modelling, in words."""
LOSS_OF = "mlm_loss/"
"""Prefix of the fields with the loss of each corpus and language."""


def scores_as_json(name: str, device: str, scores: Mapping[str, Any]) -> str:
    """One JSON object: the model's name, the device's and the scores."""
    return as_json({"model": name, "device": device} | dict(scores))


def print_scores(name: str, result: Mapping[str, Any]) -> None:
    """Print the scores."""
    if "predictions" in result:
        _report_held_out(name, result)
    else:
        print(name)
    if "pseudo_perplexity" in result:
        print(
            f"  pseudo-perplexity   {result['pseudo_perplexity']:,.2f} "
            f"({result['pseudo_perplexity_sequences']:,} sequences, "
            f"{result['pseudo_perplexity_tokens']:,} tokens masked one at a time)"
        )


def _report_each(kind: str, names: list[str], result: Mapping[str, Any]) -> None:
    """Print the scores of each corpus or language; of many, the worst."""
    if len(names) > MOST_CORPORA:
        print(f"  {len(names):,} {kind}, of which the worst (--json has all):")
        names = sorted(names, key=lambda name: by_loss(result[f"{LOSS_OF}{name}"]))[:SHOWN_CORPORA]
    for name in names:
        loss, accuracy = result[f"{LOSS_OF}{name}"], result[f"accuracy/{name}"]
        print(f"  {name.replace('/', ' '):<19} {loss:.4f} nats, {accuracy:.2%} accuracy")


def _report_held_out(name: str, result: Mapping[str, Any]) -> None:
    """Print the scores on held-out sequences."""
    generated = "rtd_loss" in result or "words_loss" in result
    who = ", by the generator" if generated else ""
    rate = at_rate(result.get(RATE))
    print(f"{name}: {result['predictions']:,} predicted tokens of held-out sequences{rate}{who}")
    print(f"  loss                {result['mlm_loss']:.4f} nats")
    print(f"  loss at [MASK]      {result['mask_loss']:.4f} nats")
    print(f"  accuracy            {result['accuracy']:.2%}")
    print(f"  perplexity          {result['perplexity']:,.2f}")
    names = sorted(key[len(LOSS_OF) :] for key in result if key.startswith(LOSS_OF))
    languages = [name for name in names if name.startswith(LANGUAGE)]
    _report_each("corpora", [name for name in names if name not in languages], result)
    _report_each("languages", languages, result)
    others = [part for part in PARTS if f"{part}_loss" in result]
    for part in others:
        loss, accuracy = result[f"{part}_loss"], result[f"{part}_accuracy"]
        per = result[ENTRY][part]["per"]
        where = " at predicted tokens" if per == "predictions" else ""
        print(f"  {PARTS[part]:<19} {loss:.4f} nats, {accuracy:.2%} accuracy{where}")
    if "rtd_auc" in result:
        suspected = not math.isnan(result["rtd_precision"])
        precision = f"{result['rtd_precision']:.2%} precision" if suspected else "none suspected"
        print(
            f"  replaced tokens     {precision}, {result['rtd_recall']:.2%} recall, "
            f"{result['rtd_auc']:.4f} area under the curve"
        )
    if "words_recall" in result:
        print(f"  replaced tokens     {result['words_recall']:.2%} restored")
    if others and "loss" in result:  # absent if a part has nothing to score
        weighted = [f"{result[ENTRY][part]['weight']:g} x {PARTS[part]}" for part in others]
        print(f"  all parts           {result['loss']:.4f} nats = loss + {' + '.join(weighted)}")

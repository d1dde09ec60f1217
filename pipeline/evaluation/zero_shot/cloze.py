"""Sentences with masks -> the most probable tokens at each mask."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from model.hugging_face.conversion import Model
from model.pieces import pieces_of
from pipeline.base.errors import DataError
from pipeline.data.tokenizers.vocabulary import Vocabulary

MASK = "[MASK]"
"""Stands for the model's own mask token."""
MOST = 5


Cloze = dict[str, Any]
"""A sentence, `text`, and of each of its masks in order `guesses`: the best tokens, each with its
`token` and `probability`."""


def read_text_lines(path: Path) -> list[str]:
    """The lines of a text that are not empty. Raises DataError if there are none."""
    try:
        # utf-8-sig: some editors put a byte-order mark first.
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").split("\n")]
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 ({error.reason} at byte {error.start})") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; name a text file") from error
    found = [line for line in lines if line]
    if not found:
        raise DataError(f"{path} is empty; expected one sentence per line")
    return found


@torch.no_grad()
def fill_masks(
    model: Model, vocabulary: Vocabulary, lines: Sequence[str], device: torch.device
) -> list[Cloze]:
    """The best tokens for every mask; all masks of a line are hidden at once."""
    tokenizer = Tokenizer.from_str(vocabulary.tokenizer_json)
    own = vocabulary.names["mask"]
    found = []
    for line in lines:
        text = tokenizer.encode(line.replace(MASK, own), add_special_tokens=False).ids
        ids = torch.tensor([vocabulary.bos, *text, vocabulary.eos], device=device)
        # Looked for in the ids: the line may have the model's own mask token instead.
        if vocabulary.mask not in text:
            raise DataError(f"the line {line[:60]!r} has no {MASK}; write one in it")
        if len(ids) > model.config.positions:
            raise DataError(
                f"the line {line[:60]!r} has {len(ids):,} tokens, but the model has "
                f"{model.config.positions:,} positions; shorten it"
            )
        places = (ids == vocabulary.mask).nonzero()[:, 0]
        logits = model.logits(ids, pieces_of([len(ids)], device))
        probabilities = logits[places].float().softmax(-1)
        best = probabilities.topk(min(MOST, probabilities.shape[-1]))
        guesses = [
            [
                # Special tokens may be guesses, too, and then are shown.
                {
                    "token": str(tokenizer.decode([token], skip_special_tokens=False)),
                    "probability": probability,
                }
                for probability, token in zip(values, tokens, strict=True)
            ]
            for values, tokens in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]
        found.append({"text": line, "guesses": guesses})
    return found


def report_cloze(found: Sequence[Cloze]) -> str:
    """Each line, and below it a line of guesses per mask."""
    lines = []
    for cloze in found:
        lines.append(cloze["text"])
        for guesses in cloze["guesses"]:
            shown = (f"{each['token'].strip()!r} {each['probability']:.1%}" for each in guesses)
            lines.append("  " + ", ".join(shown))
    return "\n".join(lines)

"""Scores of minicons, in an environment of its own: FOLDER SENTENCES.json SCORES.json.

SCORES gets the pseudo-log-likelihood (PLL-word-l2r) of each sentence and the seconds it took. The
sentences are given to minicons 32 at a time.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from minicons.scorer import MaskedLMScorer  # not in the environment that types are checked in


def main(folder: str, sentences: str, output: str) -> None:
    scorer = MaskedLMScorer(folder, "cpu")
    texts = json.loads(Path(sentences).read_text())
    started = time.perf_counter()
    scores: list[float] = []
    for first in range(0, len(texts), 32):
        scores += scorer.sequence_score(
            # its own way calls a method that transformers 5 has no more
            scorer.tokenizer(texts[first : first + 32], padding=True),
            reduction=lambda found: found.sum(0).item(),
            PLL_metric="within_word_l2r",
        )
    seconds = time.perf_counter() - started
    Path(output).write_text(json.dumps({"scores": scores, "seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])

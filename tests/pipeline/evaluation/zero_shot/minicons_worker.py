"""minicons in an environment of its own: FOLDER SENTENCES.json, and a file name per line on stdin.

Each file gets the pseudo-log-likelihood (PLL-word-l2r) of every sentence; the answer on stdout is a
line `scored WALL_SECONDS CPU_SECONDS`. The sentences are given to minicons 32 at a time.
"""

import json
import sys
import time
from pathlib import Path

from minicons.scorer import MaskedLMScorer  # not in the environment that types are checked in


def score(scorer: MaskedLMScorer, texts: list[str]) -> list[float]:
    scores: list[float] = []
    for first in range(0, len(texts), 32):
        # its own way calls a method that transformers 5 has no more
        tokens = scorer.tokenizer(texts[first : first + 32], padding=True)
        scores += scorer.sequence_score(
            tokens, reduction=lambda found: found.sum(0).item(), PLL_metric="within_word_l2r"
        )
    return scores


def main(folder: str, sentences: str) -> None:
    scorer = MaskedLMScorer(folder, "cpu")
    texts = json.loads(Path(sentences).read_text())
    for line in sys.stdin:
        started = time.perf_counter(), time.process_time()
        scores = score(scorer, texts)
        seconds = time.perf_counter() - started[0], time.process_time() - started[1]
        Path(line.strip()).write_text(json.dumps(scores))
        print("scored", *seconds, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

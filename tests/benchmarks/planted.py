"""Documents of random words with planted copies whose Jaccard index is known."""

import re

import numpy as np

SHINGLE = 5


def shingle_set(text: str) -> set[tuple[str, ...]]:
    """All runs of five words of a text without accents or punctuation: slow, obvious."""
    words = re.findall("[a-z0-9]+", text.lower())
    return {tuple(words[i : i + SHINGLE]) for i in range(max(1, len(words) - SHINGLE + 1))}


def jaccard(one: str, other: str) -> float:
    """Shared shingles of two texts, relative to all of theirs."""
    a, b = shingle_set(one), shingle_set(other)
    return len(a & b) / len(a | b)


def document(rng: np.random.Generator, words: int) -> list[str]:
    """Words by Zipf's law, of 50,000."""
    ranks = np.exp(rng.random(words) * np.log(50_000)).astype(int)
    return [f"w{rank}" for rank in ranks]


def copy_of(words: list[str], alike: float, rng: np.random.Generator) -> list[str]:
    """The same words with some changed, far apart, so that the Jaccard index is about `alike`.

    One word is in five shingles: k words leave n - 5k of n, and 5k new ones.
    """
    shingles = len(words) - SHINGLE + 1
    changed = shingles * (1 - alike) / (SHINGLE * (1 + alike))
    count = int(changed) + (rng.random() < changed % 1)
    changed_words = list(words)
    for place in (rng.permutation(len(words) // 6)[:count] * 6 + 3).tolist():
        changed_words[place] = f"new{rng.integers(1 << 30)}"
    return changed_words

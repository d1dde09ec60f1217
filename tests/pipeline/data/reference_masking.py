"""The published masking algorithms, slow and obvious, for comparison with ours.

Written from the papers and from reading the code that their authors released. A row is a list of
words, each a list of positions; what comes back is the set of predicted positions. Random numbers
are Python's, so only distributions can be compared.
"""

import math
import random

Words = list[list[int]]


def whole_words(words: Words, budget: int, rng: random.Random) -> set[int]:
    """BERT: shuffle the words, take each that still fits."""
    return ngrams(words, budget, [1.0], rng)


def ngrams(words: Words, budget: int, likely: list[float], rng: random.Random) -> set[int]:
    """ALBERT: shuffle the words, draw for each how many follow, back off until that fits."""
    predicted: set[int] = set()
    heads = list(range(len(words)))
    rng.shuffle(heads)
    for head in heads:
        if len(predicted) == budget:
            break
        (count,) = rng.choices(range(1, len(likely) + 1), likely)
        gram = [position for word in words[head : head + count] for position in word]
        while count > 1 and len(predicted) + len(gram) > budget:
            count -= 1
            gram = [position for word in words[head : head + count] for position in word]
        if len(predicted) + len(gram) <= budget and predicted.isdisjoint(gram):
            predicted.update(gram)
    return predicted


def spans(words: Words, rate: float, likely: list[float], rng: random.Random) -> set[int]:
    """SpanBERT: from the word of a random free token on, until the budget is used up."""
    tokens = [position for word in words for position in word]
    word_of = {position: index for index, word in enumerate(words) for position in word}
    budget = math.ceil(len(tokens) * rate - 1e-9)
    predicted: set[int] = set()
    while len(predicted) < budget:
        (count,) = rng.choices(range(1, len(likely) + 1), likely)
        anchor = rng.choice(tokens)
        if anchor in predicted:
            continue
        head = word_of[anchor]
        for position in (place for word in words[head : head + count] for place in word):
            if len(predicted) < budget:
                predicted.add(position)
    return predicted


def tokens(words: Words, budget: int, rng: random.Random) -> set[int]:
    """BERT's and ELECTRA's single tokens, each at most once."""
    return set(rng.sample([position for word in words for position in word], budget))

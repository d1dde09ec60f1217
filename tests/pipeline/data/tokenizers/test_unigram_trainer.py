"""Unigram training against slow, obvious sums, and against `tokenizers`' own trainer."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from pipeline.data.tokenizers import unigram_trainer as module
from pipeline.data.tokenizers.unigram_trainer import CountedWords, train_pieces

COUNTS = {"▁abab": 5, "▁aba": 3, "▁b": 2, "▁ab": 7}


def segmentations(word: str) -> list[list[str]]:
    cuts = itertools.product([False, True], repeat=len(word) - 1)
    return [
        "".join(c + "\0" * cut for c, cut in zip(word, [*cut, False])).split("\0") for cut in cuts
    ]


def test_seeds_and_expected_counts() -> None:
    """Seeds are substrings that occur twice; expected counts, sums over all segmentations."""
    text = "".join(COUNTS)
    words = CountedWords(
        np.frombuffer(text.encode("utf-32-le"), np.uint32),
        np.cumsum([0, *map(len, COUNTS)]),
        np.array(list(COUNTS.values()), float),
    )
    pieces = module._seed(words)
    names = [text[s : s + n] for s, n in zip(pieces.starts, pieces.lengths)]
    often: Counter[str] = Counter()
    for word, count in COUNTS.items():
        for start, stop in itertools.combinations(range(len(word) + 1), 2):
            often[word[start:stop]] += count
    seeds = {part: count for part, count in often.items() if count >= 2 or len(part) == 1}
    assert len(names) == len(set(names)) and set(names) == set(seeds)
    total = sum(count * len(part) for part, count in seeds.items())
    for part, score in zip(names, pieces.scores):
        assert score == pytest.approx(math.log(seeds[part] * len(part) / total))
    scores = dict(zip(names, pieces.scores))
    expected = dict.fromkeys(names, 0.0)
    best: Counter[str] = Counter()
    for word, count in COUNTS.items():
        known = [s for s in segmentations(word) if all(part in scores for part in s)]
        weights = [math.exp(sum(scores[part] for part in s)) for s in known]
        for parts, weight in zip(known, weights):
            for part in parts:
                expected[part] += count * weight / sum(weights)
        best.update({p: n * count for p, n in Counter(known[np.argmax(weights)]).items()})
    table = module._table(words.codes, pieces.starts, pieces.lengths)
    found, used = np.zeros(len(names)), np.zeros(len(names))
    arrays = (words.codes, words.offsets, words.counts, *table, pieces.scores)
    module._expect(*arrays, found)
    module._count_best(*arrays, used)
    np.testing.assert_allclose(found, list(expected.values()), rtol=1e-9)
    assert used.tolist() == [best[name] for name in names]


def test_digamma() -> None:
    euler = 0.5772156649015329
    found = module._digamma(np.array([1.0, 2.0, 0.5, 100.0]))
    expected = [-euler, 1 - euler, -euler - 2 * math.log(2), 4.600161852738087]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_as_good_as_the_trainer_of_tokenizers(sample_text: list[str]) -> None:
    """With as many pieces, a text takes as many tokens within 1 %."""
    texts = [" ".join(text.split()) for text in sample_text[::2]]
    held_out, seen = texts[::5], [text for i, text in enumerate(texts) if i % 5]
    counts = Counter("▁" + word for text in seen for word in text.split())
    pieces = train_pieces(counts, 1500)
    ours = Tokenizer(models.Unigram([("<unk>", 0.0), *pieces], 0))
    theirs = Tokenizer(models.Unigram())
    for tokenizer in (ours, theirs):
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=1501, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )
    theirs.train_from_iterator(seen, trainer)
    taken = [
        sum(len(encoding) for encoding in tokenizer.encode_batch(held_out))
        for tokenizer in (ours, theirs)
    ]
    assert len(pieces) == 1500
    assert taken[0] < 1.01 * taken[1], taken

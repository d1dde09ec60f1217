"""Runs and signatures against slow, obvious versions."""

import numpy as np

from pipeline.data.selection import minhash
from pipeline.data.text.cleaning import clean
from tests.benchmarks.planted import copy_of, document, jaccard
from tests.pipeline.data.selection.conftest import arrays
from tests.pipeline.data.selection.test_words import words


def runs(text: str, count: int) -> set[tuple[str, ...]]:
    found = words(text)
    return {tuple(found[i : i + count]) for i in range(len(found) - count + 1)}


def made(texts: list[str], function: str, *more: object) -> np.ndarray:
    result: np.ndarray = getattr(minhash, function)(*arrays(texts), *more)
    return result


TEXTS = [
    "Don't: 3,000 “quoted” words—and Élan vital… (naïve, ÉCOLE) x",
    "",
    "...",
    "数学是研究数量、结构以及空间的学科。 ABC中文x",
    "ประเทศไทย is Thailand; 한국어 는 two words",
    "\U0001f600 smile ½ and « Привет, мир »",
    "ｆｕｌｌ ა ქართული မြန်မာ ខ្មែរ \u2e80 ꀀ",
]


def test_runs(sample_text: list[str]) -> None:
    for text in [*TEXTS, *sample_text[:20]]:
        found = made([text], "runs", 4)
        cleaned = clean([text]).texts()[0]
        assert len(set(found.tolist())) == len(runs(cleaned, 4))
        assert len(found) == max(0, len(words(cleaned)) - 3)


def test_documents_that_have_a_run(sample_text: list[str]) -> None:
    """A run at the start or end of a document is found; one across documents is not."""
    texts = [document_text.lower() for document_text in sample_text[:40]]
    wanted = [" ".join(words(text)[-13:]).upper() for text in texts[::3]]
    table = minhash.run_table(made(wanted, "runs", 13))
    known = set().union(*(runs(text.lower(), 13) for text in wanted))
    expected = [bool(runs(text, 13) & known) for text in clean(texts).texts()]
    assert made(texts, "have_run", 13, table).tolist() == expected
    assert any(expected) and not all(expected)
    start, _, end = wanted[0].rpartition(" ")
    assert not made([start, end], "have_run", 13, table).any()


def test_signatures_estimate_the_jaccard_index() -> None:
    """No bias, and the standard deviation of 256 independent orders."""
    rng = np.random.default_rng(0)
    ones = [document(rng, int(rng.integers(8, 400))) for _ in range(1500)]
    others = [copy_of(words, rng.uniform(0.2, 0.98), rng) for words in ones]
    texts = [" ".join(words) for words in ones + others]
    signed = made(texts, "signatures")
    equal = np.array([minhash.equal_parts(*pair) for pair in zip(signed[:1500], signed[1500:])])
    estimated = (equal / 256 - 1 / 256) / (1 - 1 / 256)
    index = np.array([jaccard(*pair) for pair in zip(texts[:1500], texts[1500:])])
    open_ = (index > 0.01) & (index < 0.99)
    assert abs((estimated - index)[open_].mean()) < 0.002  # three deviations
    spread = ((estimated - index) / np.sqrt(index * (1 - index) / 256 + 1e-9))[open_].std()
    assert 0.9 < spread < 1.1
    assert (estimated[index == 1] == 1).all()


def test_copies_long_and_very_short_texts() -> None:
    """A block of shingles is 1,024; repeated ones count once; fewer than five words are one."""
    rng = np.random.default_rng(1)
    long = " ".join(document(rng, 5000))
    twice, short = f"{long} {long}", ["one two", "one two three", "...", "* * *", "One. Two!"]
    signed = made([long, twice, *short], "signatures")
    assert minhash.equal_parts(signed[0], signed[1]) > 250
    assert (signed[2] == signed[6]).all()
    assert len({row.tobytes() for row in signed[2:]}) == 4
    same = ["One, two three.", "one two\nThree", "ONE-TWO (three)"]
    other = ["one two", "onetwo three", "two one three", "...", "* * *", ""]
    hashes = made(same + other, "word_hashes").ravel().tolist()
    assert len(set(hashes[:3])) == 1 and len(set(hashes)) == 7


def test_equal_parts() -> None:
    rng = np.random.default_rng(2)
    one = rng.integers(0, 256, (50, 256), np.uint8)
    other = np.where(rng.random((50, 256)) < 0.7, one, rng.integers(0, 256, (50, 256), np.uint8))
    for a, b in zip(one, other):
        assert minhash.equal_parts(a.view(np.uint64), b.view(np.uint64)) == (a == b).sum()

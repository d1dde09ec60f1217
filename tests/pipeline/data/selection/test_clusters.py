"""Clusters against a comparison of all pairs, and the share of planted copies that is found."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.data.selection import clusters
from pipeline.data.selection.clusters import EXACT, NEAR, Likeness
from pipeline.data.selection.minhash import equal_parts, signatures, word_hashes
from tests.benchmarks.planted import copy_of, document, jaccard
from tests.pipeline.data.selection.conftest import arrays


def roots(
    signed: np.ndarray,
    scratch: Path,
    likeness: Likeness = NEAR,
    *,
    has: np.ndarray | None = None,
    words: int = 32,
    range_documents: int = 1 << 20,
) -> list[int]:
    """All steps in turn; words: of the signatures that a step reads at a time."""
    scratch.mkdir()
    has = np.ones(len(signed), np.bool_) if has is None else has
    parts = {first: signed[:, first : first + words] for first in range(0, likeness.words, words)}
    candidates = [scratch / f"candidates-{first}" for first in parts]
    agreement = [scratch / f"agreement-{first}" for first in parts]
    for path, (first, part) in zip(candidates, parts.items()):
        clusters.write_candidates(path, part, has, first, range_documents)
    clusters.merge_candidates(scratch / "pairs", candidates, len(signed))
    for path, part in zip(agreement, parts.values()):
        clusters.write_agreement(path, scratch / "pairs", part)
    made = scratch / "roots"
    clusters.write_roots(made, scratch / "pairs", agreement, likeness.least, len(signed))
    return np.fromfile(made, np.uint32).tolist()


def all_pairs(signed: np.ndarray, likeness: Likeness) -> list[int]:
    """The first of each cluster, by comparing every pair that shares a band."""
    first = list(range(len(signed)))
    for later in range(len(signed)):
        for earlier in range(later):
            shares = (signed[later] == signed[earlier]).any()
            if shares and equal_parts(signed[later], signed[earlier]) >= likeness.least:
                a, b = sorted((first[later], first[earlier]))
                first = [a if root == b else root for root in first]
    return first


def families(rng: np.random.Generator, count: int) -> np.ndarray:
    """Signatures in small families, whose members are more or less similar."""
    made = [rng.integers(0, 256, 256, np.uint8)]
    while len(made) < count:
        like = made[rng.integers(len(made))]
        kept = rng.random(256) < rng.choice([0, 0.5, 0.72, 0.78, 0.85, 1])
        made.append(np.where(kept, like, rng.integers(0, 256, 256, np.uint8)))
    return np.array(made).view(np.uint64)


def test_clusters_equal_those_of_all_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one range of hashes and in many, by any number of words, and with dropped documents."""
    signed = families(np.random.default_rng(0), 400)
    expected = all_pairs(signed, NEAR)
    assert 20 < len(set(expected)) < 300
    assert roots(signed, tmp_path / "a") == expected
    assert roots(signed, tmp_path / "b", words=5, range_documents=9) == expected
    sparse = np.repeat(signed, 2, axis=0)
    found = roots(sparse, tmp_path / "c", has=np.arange(800) % 2 == 1, words=1)
    assert found[::2] == [*range(0, 800, 2)]
    assert found[1::2] == [2 * root + 1 for root in expected]
    pairs = (tmp_path / "a" / "pairs").read_bytes()
    assert (tmp_path / "b" / "pairs").read_bytes() == pairs
    for name, value in (("RUN", 7), ("_READ", 3), ("_PAIRS", 11), ("_MERGED_DOCUMENTS", 13)):
        monkeypatch.setattr(clusters, name, value)
    assert roots(signed, tmp_path / "d", words=5) == expected
    assert (tmp_path / "d" / "pairs").read_bytes() == pairs


def test_many_with_the_same_band_are_not_all_compared(tmp_path: Path) -> None:
    """A quote on 3,000 pages does not cause 4.5 million comparisons; copies are still found. Exact
    copies are one band."""
    hashes = word_hashes(*arrays(["a b", "c", "A, b.", "...", "c", "***"]))
    assert roots(hashes, tmp_path / "exact", EXACT) == [0, 1, 0, 3, 1, 5]
    # different documents stay apart even if all bits of their bucket agree
    hashes = np.random.default_rng(0).integers(1 << 60, size=(300_000, 1), dtype=np.uint64)
    assert roots(hashes, tmp_path / "apart", EXACT) == [*range(300_000)]
    rng = np.random.default_rng(1)
    signed = rng.integers(1 << 63, size=(3000, 32), dtype=np.uint64)
    signed[:, 5] = 77
    signed[2999] = signed[1500]
    assert roots(signed, tmp_path / "a") == [*range(2999), 1500]
    assert roots(signed[:0], tmp_path / "b") == []
    dropped = np.zeros(3, np.bool_)
    assert roots(signed[:3] * 0, tmp_path / "c", has=dropped) == [0, 1, 2]


def test_recall_and_precision(tmp_path: Path) -> None:
    """At Jaccard 0.8 at least 95 % are found (expected 97.5 %), and at most 1 % of the copies found
    are below 0.7, among 150 pairs at each of eight levels."""
    rng = np.random.default_rng(2)
    levels = (0.3, 0.5, 0.6, 0.65, 0.8, 0.8, 0.9, 0.97)
    ones = [document(rng, int(rng.integers(60, 400))) for _ in levels for _ in range(150)]
    others = [copy_of(words, levels[i // 150], rng) for i, words in enumerate(ones)]
    texts = [" ".join(words) for words in ones + others]
    found = roots(signatures(*arrays(texts)), tmp_path / "a")
    half = len(ones)
    assert found[:half] == [*range(half)]
    assert all(found[half + i] in (i, half + i) for i in range(half))  # no unrelated documents join
    taken = np.array([found[half + i] == i for i in range(half)])
    index = np.array([jaccard(*pair) for pair in zip(texts[:half], texts[half:])])
    at = abs(index - 0.8) < 0.02
    assert at.sum() > 200 and taken[at].mean() >= 0.95
    assert taken[index > 0.85].mean() > 0.999
    assert (index[taken] >= 0.7).mean() >= 0.99

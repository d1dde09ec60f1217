"""Weights against the formula, shares and passes against arithmetic, lists of bounded length."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.config.settings import override
from pipeline.config.training_settings import BatchSettings
from pipeline.planning.mixtures import (
    MOST_SHOWN,
    corpora_used,
    describe_mixture,
    mixture_weights,
    read_factors,
)
from pipeline.recipes import recipe


def dataset(corpus: str, tokens: int, rows: int, language: str = "") -> Any:
    manifest = SimpleNamespace(corpora={corpus: {"language": language} if language else {}})
    return SimpleNamespace(manifest=manifest, tokens=tokens, rows=rows)


def batch(*settings: str) -> BatchSettings:
    return override(recipe("roberta_tiny"), settings).batch


EN, SW, YO = dataset("en", 1_000_000, 2000), dataset("sw", 10_000, 25), dataset("yo", 100, 1)


@pytest.mark.parametrize("exponent", [0, 0.3, 0.5, 0.7])
def test_corpora_are_read_by_a_power_of_their_tokens(exponent: float) -> None:
    """p_i = n_i^a / sum n_j^a; 10^6, 10^4 and 10^2 tokens differ by powers of 100."""
    settings = batch(f"batch.mixture_exponent={exponent}")
    used = corpora_used(settings, [YO, EN, SW], 10_000)
    ratio = 100**exponent
    total = 1 + ratio + ratio**2
    assert [use.corpus for use in used] == ["en", "sw", "yo"]
    assert [use.share * total for use in used] == pytest.approx([ratio**2, ratio, 1])
    assert used[2].passes == pytest.approx(10_000 / total)
    assert used[0].passes == pytest.approx(10_000 * used[0].share / 2000)
    factors = read_factors(settings, [YO, EN, SW])
    rows = sum(factor * own.rows for factor, own in zip(factors, [YO, EN, SW], strict=True))
    assert rows == pytest.approx(2026)
    # an exponent of 1 is no mixture
    assert mixture_weights(batch(), [EN, SW]) == ()
    assert read_factors(batch(), [EN, SW]) == [1, 1]
    assert corpora_used(batch(), [EN, SW], 10) == [] == describe_mixture(batch(), [])


def test_directories_of_a_corpus_divide_its_weight_by_their_rows() -> None:
    parts = [dataset("en", 400, 10), dataset("sw", 100, 10), dataset("en", 500, 30)]
    weights = mixture_weights(batch("batch.mixture_exponent=0.5"), parts)
    assert weights == pytest.approx((30 / 4, 10, 30 * 3 / 4))
    given = json.dumps([{"corpus": "en", "weight": 8}, {"corpus": "sw", "weight": 1}])
    assert mixture_weights(batch(f"batch.mixture={given}"), parts) == (2, 1, 6)
    [en, sw] = corpora_used(batch(f"batch.mixture={given}"), parts, 90)
    assert (en.tokens, en.share, en.passes, sw.passes) == (900, pytest.approx(8 / 9), 2, 1)


def test_languages_are_read_by_a_power_of_their_tokens() -> None:
    """300 corpora and directories of about 40 languages, some of none; the papers' alpha and tau.
    Weights are compared with one vector of numpy, and every row of a language is read alike."""
    rng = np.random.default_rng(0)
    tokens, rows = rng.integers(100, 10**9, 300), rng.integers(1, 10**6, 300)
    codes = [f"l{n}" if n < 40 else "" for n in rng.integers(0, 50, 300).tolist()]
    names = [f"c{n % 290}" for n in range(300)]  # the last ten are of corpora that came before
    codes[290:] = codes[:10]
    made = zip(names, tokens.tolist(), rows.tolist(), codes, strict=True)
    parts = [dataset(*each) for each in made]
    keys, group = np.unique([code or name for code, name in zip(codes, names)], return_inverse=True)
    for exponent in (0, 0.3, 0.5, 0.7):
        settings = batch(f"batch.mixture_exponent={exponent}", "batch.mixture_over=languages")
        found = np.array(mixture_weights(settings, parts))
        expected = np.bincount(group, tokens) ** exponent
        assert np.bincount(group, found) == pytest.approx(expected)
        assert found / rows == pytest.approx((expected / np.bincount(group, rows))[group])
        used = corpora_used(settings, parts, 10**6)
        assert len(used) == 290 and sum(use.share for use in used) == pytest.approx(1)
        count = f"290 corpora by the tokens^{exponent:g} of their {len(keys)} languages"
        assert describe_mixture(settings, used)[0] == f"mixture: {count}"
    settings = batch("batch.mixture_over=languages", "batch.mixture_exponent=0.5")
    called_alike = [dataset("en", 100, 5), dataset("en-web", 100, 5, "en")]  # one has no language
    assert mixture_weights(settings, called_alike) == (10, 10)
    alone = [dataset(str(n), 10**n, 5) for n in range(1, 6)]
    by_corpus = batch("batch.mixture_exponent=0.5")
    assert mixture_weights(settings, alone) == mixture_weights(by_corpus, alone)


def test_the_plan_names_the_languages_of_corpora() -> None:
    settings = batch("batch.mixture_exponent=0.5", "batch.mixture_over=languages")
    parts = [dataset("web", 900, 9, "en"), dataset("wiki", 700, 7, "en"), dataset("yo", 400, 4)]
    used = corpora_used(settings, parts, 30)
    assert [use.corpus for use in used] == ["web", "wiki", "yo"]
    assert [use.language for use in used] == ["en", "en", ""]
    assert [60 * use.share for use in used] == pytest.approx([40 * 9 / 16, 40 * 7 / 16, 20])
    first, web, _, yo = describe_mixture(settings, used)
    assert first == "mixture: 3 corpora by the tokens^0.5 of their 2 languages"
    assert web.startswith("  web (en)   ")
    assert yo.split() == ["yo", "400", "tokens", "33.333%", "2.50", "passes"]
    by_corpus = corpora_used(batch("batch.mixture_exponent=0.5"), parts, 30)
    assert {use.language for use in by_corpus} == {""}


def test_of_many_corpora_the_largest_and_the_smallest_are_shown() -> None:
    settings = batch("batch.mixture_exponent=0.5")
    many = [dataset(f"l{n}", n * n, 1) for n in range(1, 1834)]
    lines = describe_mixture(settings, corpora_used(settings, many, 1833))
    assert len(lines) == 2 + MOST_SHOWN
    assert lines[0] == "mixture: 1,833 corpora by their tokens^0.5"
    assert lines[1].split() == ["l1833", "3,359,889", "tokens", "0.109%", "2.00", "passes"]
    assert lines[7] == "  ... 1,821 more: pipeline.plan --json has all"
    assert lines[-1].split()[0] == "l1"
    [one, _] = describe_mixture(settings, corpora_used(settings, many[:1], 1))
    assert one == "mixture: 1 corpus by their tokens^0.5"
    few = describe_mixture(settings, corpora_used(settings, many[:12], 12))
    assert len(few) == 13 and not any("more" in line for line in few)

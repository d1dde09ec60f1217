import json

import pytest

from pipeline.base.errors import ConfigError
from pipeline.config.run import Run, in_phase
from pipeline.config.settings import from_dict, override, to_dict
from pipeline.config.training_settings import CorpusWeight
from pipeline.recipes import recipe
from tests.pipeline.config.refusals import assert_refused


def phased(*settings: str, name: str = "roberta_tiny") -> Run:
    """A recipe with a first phase that has these settings."""
    phase = {"steps": 9, "sequence_length": 16, "sequences": 8, "settings": settings}
    return override(recipe(name), [f"phases={json.dumps([phase])}"])


def test_a_phase_changes_masks_mixture_and_dropout() -> None:
    mixture = '[{"corpus": "books", "weight": 3}, {"corpus": "news", "weight": 1}]'
    run = phased(
        "data.masks.rate=0.3", "data.masking=whole_word", "encoder.dropout=0.2",
        "data.mask_mode=per-epoch", "data.duplicates=0", f"batch.mixture={mixture}",
    )  # fmt: skip
    part = in_phase(run, run.phases[0], True)
    assert (part.data.masks.rate, part.data.masking, part.data.duplicates) == (0.3, "whole_word", 0)
    assert part.encoder.dropout == 0.2 and run.encoder.dropout == 0.0
    weights = CorpusWeight(corpus="books", weight=3.0), CorpusWeight(corpus="news", weight=1.0)
    assert part.batch.mixture == weights and run.batch.mixture == ()
    assert (part.data.sequence_length, part.batch.sequences, part.phases) == (16, 8, ())
    assert from_dict(Run, json.loads(json.dumps(to_dict(run)))) == run
    later = override(run, ['phases.0.settings=["encoder.dropout=0.3"]', f"batch.mixture={mixture}"])
    assert in_phase(later, later.phases[0], True).encoder.dropout == 0.3
    assert later.batch.mixture == weights
    plain = phased()
    stored = to_dict(plain)
    del stored["phases"][0]["settings"]  # a phase typed by hand may omit them
    assert from_dict(Run, stored) == plain


def test_settings_that_do_not_fit_are_refused_and_the_remedies_fit() -> None:
    for name, setting, said in (
        ("roberta_tiny", "optimizer.peak_lr=1", "optimizer.peak_lr=1, but"),
        ("roberta_tiny", "data.masks.rat=0.3", "phases.0.settings .*data.masks.rat;"),
        ("roberta_tiny", "data.masks.rate=2", "phases.0.settings .*data.masks.rate=2.0"),
        ("spanbert_tiny", "data.masking=token", "phases.0.settings .*objective.kind=mlm_sbo"),
        (
            "roberta_tiny",
            "data.mask_mode=per-epoch",
            "phases.0.settings .*data.mask_mode=per-epoch",
        ),
    ):
        with pytest.raises(ConfigError, match=said) as error:
            phased(setting, "encoder.dropout=0.1", name=name)
        if setting == "optimizer.peak_lr=1":
            rest = (
                "--set 'phases.0.settings=[\"encoder.dropout=0.1\"]', and --set optimizer.peak_lr=1"
            )
            assert rest in str(error.value)
    assert phased("data.mask_mode=per-epoch", "data.duplicates=0")
    run = override(phased(), ["phases.0.settings=[]", "optimizer.peak_lr=1"])
    assert in_phase(run, run.phases[0], True).optimizer.peak_lr == 1.0
    with pytest.raises(ConfigError) as error:  # a problem of the whole run is reported once
        override(phased("encoder.dropout=0.2"), ["data.masks.rate=2"])
    assert not error.value.problems and str(error.value).startswith("data.masks.rate=2.0 ")


def test_corpora_are_weighed_in_one_way_and_named_once() -> None:
    weights = 'batch.mixture=[{"corpus":"news","weight":1}]'
    for more in ("mixture_exponent=0.3", "mixture_over=languages", 'corpora=["books"]'):
        assert_refused("roberta_tiny", f"{weights} batch.{more}")
    twice = '[{"corpus": "news", "weight": 1}, {"corpus": "news", "weight": 2}]'
    for setting, message in (
        ("batch.mixture_exponent=1.5", r"mixture_exponent=1.5 .* \[0, 1\]"),
        ("batch.mixture_exponent=-0.1", "mixture_exponent=-0.1 "),
        ("batch.mixture_over=scripts", "'scripts' .* corpora, languages"),
        (f"batch.mixture={twice}", r"news twice; .* batch.mixture=\[\]"),
        ('batch.corpora=["news", "news"]', r"news twice; .* batch.corpora=\[\]"),
        ("phases.0.settings=encoder.dropout=0.1", "wrong type"),
    ):
        with pytest.raises(ConfigError, match=message):
            override(phased(), [setting])
    for exponent in (0, 0.3, 1):  # of a phase, too
        setting = f"batch.mixture_exponent={exponent}"
        run = override(phased(), [f"phases.0.settings={json.dumps([setting])}", setting])
        part = in_phase(run, run.phases[0], first=True)
        assert part.batch.mixture_exponent == run.batch.mixture_exponent == exponent
        assert part.batch.is_mixed == (exponent < 1) and part.batch.named == ()

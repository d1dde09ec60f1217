from __future__ import annotations

import json

import pytest

from pipeline.base.errors import ConfigError
from pipeline.config.run import Run, in_phase
from pipeline.config.settings import from_dict, override, to_dict
from pipeline.config.training_settings import CorpusWeight
from pipeline.recipes import recipe


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
    weights = (
        CorpusWeight(corpus="books", weight=3.0),
        CorpusWeight(corpus="news", weight=1.0),
    )
    assert part.batch.mixture == weights and run.batch.mixture == ()
    assert (part.data.sequence_length, part.batch.sequences, part.phases) == (16, 8, ())
    assert from_dict(Run, json.loads(json.dumps(to_dict(run)))) == run
    later = override(run, ['phases.0.settings=["encoder.dropout=0.3"]', f"batch.mixture={mixture}"])
    assert in_phase(later, later.phases[0], True).encoder.dropout == 0.3
    assert later.batch.mixture == weights


def test_a_phase_typed_by_hand_may_omit_its_settings() -> None:
    run = phased()
    stored = to_dict(run)
    del stored["phases"][0]["settings"]
    assert from_dict(Run, stored) == run


@pytest.mark.parametrize(
    "settings, name, message",
    [
        (
            ("optimizer.peak_lr=1", "encoder.dropout=0.1"),
            "roberta_tiny",
            "phases.0.settings has optimizer.peak_lr=1, but a phase may change only data.masking, "
            "data.masks, data.mask_mode, data.duplicates, batch.mixture, "
            "batch.mixture_exponent, batch.mixture_over, batch.corpora, encoder.dropout, "
            "encoder.attention_dropout, encoder.rotary_base, encoder.local_rotary_base; add "
            "--set 'phases.0.settings=[\"encoder.dropout=0.1\"]', and --set optimizer.peak_lr=1 to "
            "have it in all phases",
        ),
        (
            ("data.masks.rat=0.3",),
            "roberta_tiny",
            "phases.0.settings (add there what --set names): unknown setting data.masks.rat; did "
            "you mean data.masks.rate?",
        ),
        (
            ("data.masks.rate=2",),
            "roberta_tiny",
            "phases.0.settings (add there what --set names): data.masks.rate=2.0 is out of range; "
            "choose one in (0, 1)",
        ),
        (
            ("data.masking=token",),
            "spanbert_tiny",
            "phases.0.settings (add there what --set names): objective.kind=mlm_sbo predicts "
            "masked spans, but data.masking=token draws none; add --set data.masking=span, or "
            "--set objective.kind=mlm",
        ),
        (
            ("data.mask_mode=per-epoch",),
            "roberta_tiny",
            "phases.0.settings (add there what --set names): data.mask_mode=per-epoch conflicts "
            "with data.duplicates=10: static stores 1 mask, duplicates 1 or more, per-epoch none; "
            "add --set data.duplicates=0, or --set data.mask_mode=duplicates",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    settings: tuple[str, ...], name: str, message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        phased(*settings, name=name)
    assert str(error.value) == message


def test_what_the_message_names_makes_it_legal() -> None:
    rest = '["data.mask_mode=per-epoch", "data.duplicates=0"]'
    assert override(phased(), [f"phases.0.settings={rest}"])
    run = override(phased(), ["phases.0.settings=[]", "optimizer.peak_lr=1"])
    assert in_phase(run, run.phases[0], True).optimizer.peak_lr == 1.0


def test_a_problem_of_the_whole_run_is_reported_once() -> None:
    run = phased("encoder.dropout=0.2")
    with pytest.raises(ConfigError) as error:
        override(run, ["data.masks.rate=2"])
    assert str(error.value) == "data.masks.rate=2.0 is out of range; choose one in (0, 1)"


def test_lists_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(ConfigError, match="has the wrong type; give a JSON list of texts"):
        override(phased(), ["phases.0.settings=encoder.dropout=0.1"])
    twice = '[{"corpus": "news", "weight": 1}, {"corpus": "news", "weight": 2}]'
    with pytest.raises(ConfigError, match=r"news twice; .* or add --set batch.mixture=\[\]"):
        override(recipe("roberta_tiny"), [f"batch.mixture={twice}"])
    with pytest.raises(ConfigError, match=r"news twice; .* or add --set batch.corpora=\[\]"):
        override(recipe("roberta_tiny"), ['batch.corpora=["news", "news"]'])


def test_corpora_are_weighed_in_one_way() -> None:
    weights = 'batch.mixture=[{"corpus": "news", "weight": 1}]'
    for settings, message in (
        (
            ["batch.mixture_exponent=1.5"],
            r"batch.mixture_exponent=1.5 is out of range; .* \[0, 1\]",
        ),
        (["batch.mixture_exponent=-0.1"], "batch.mixture_exponent=-0.1 is out of range"),
        (
            [weights, "batch.mixture_exponent=0.3"],
            "batch.mixture_exponent=0.3 weighs the corpora by their size, but batch.mixture has "
            "weights for 1; add --set batch.mixture=.* or --set batch.mixture_exponent=1",
        ),
        (
            [weights, "batch.mixture_over=languages"],
            r"batch.mixture weighs corpora; add --set batch.mixture_over=corpora, or --set batch.m",
        ),
        (
            ["batch.mixture_over=scripts"],
            "mixture_over='scripts' is not a choice; choose one of corpora, languages",
        ),
        (
            [weights, 'batch.corpora=["books"]'],
            r"batch.corpora names corpora, but batch.mixture names .* add --set batch.corpora=\[\]",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            override(recipe("roberta_tiny"), settings)
    for exponent in (0, 0.3, 1):  # of a phase, too
        setting = f"batch.mixture_exponent={exponent}"
        run = override(phased(), [f"phases.0.settings={json.dumps([setting])}", setting])
        part = in_phase(run, run.phases[0], first=True)
        assert part.batch.mixture_exponent == run.batch.mixture_exponent == exponent
        assert part.batch.is_mixed == (exponent < 1) and part.batch.named == ()

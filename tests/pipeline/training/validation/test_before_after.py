"""The held-out losses of both ends of a run, in words."""

import math

from pipeline.training.validation.before_after import at_the_start, change

FIRST = {"step": 0, "validation_mlm_loss": 3.21, "general_mlm_loss": 2.9}


RATE = {"validation_mask_rate": 0.15}


def test_the_losses_of_the_start() -> None:
    beginning = "before the first step: "
    both = "held-out loss 3.2100 on your text, 2.9000 on the general sample"
    assert at_the_start(FIRST) == beginning + both
    own = {"step": 0, "validation_mlm_loss": 3.21}
    assert at_the_start(own) == f"{beginning}held-out loss 3.2100 on your text"
    assert at_the_start(FIRST | RATE).startswith(f"{beginning}held-out loss (15 % masked)")
    assert at_the_start({"step": 0}) == f"{beginning}no held-out loss"


def test_both_ends() -> None:
    for after, forgetting in (
        (3.1, "forgetting: +0.2000"), (2.8, "no forgetting"),
        (2.90004, "no forgetting"),  # as the two numbers read
    ):  # fmt: skip
        last = {"step": 30, "validation_mlm_loss": 2.64, "general_mlm_loss": after}
        assert change(FIRST, last) == (
            "held-out loss 3.2100 -> 2.6400 on your text, "
            f"2.9000 -> {after:.4f} on the general sample ({forgetting})"
        )
    broken = change(FIRST, {"step": 30, "general_mlm_loss": math.nan})
    assert "-> nan on the general sample" in broken and "forgetting" not in broken
    said = change(FIRST | RATE, {"step": 30, "validation_mlm_loss": 2.64} | RATE)
    assert said.startswith("held-out loss (15 % masked) 3.2100 -> ")


def test_the_parts_of_an_objective_are_named() -> None:
    """A part that was not scored, or has no finite loss, is absent."""
    first = FIRST | {"validation_rtd_loss": 0.5, "general_rtd_loss": None}
    last = {
        "step": 9, "validation_mlm_loss": 3.0, "general_mlm_loss": 2.95,
        "validation_rtd_loss": 0.25, "general_rtd_loss": 0.5,
    }  # fmt: skip
    assert change(first, last) == (
        "held-out loss of words 3.2100 -> 3.0000 on your text, 2.9000 -> 2.9500 on the general "
        "sample (forgetting: +0.0500); of detection 0.5000 -> 0.2500 on your text"
    )


def test_a_run_without_both_ends_has_no_line() -> None:
    last = {"step": 30, "validation_mlm_loss": 2.64}
    assert change(last, last | {"step": 40}) == ""
    assert change(FIRST, FIRST) == ""
    assert change(FIRST, {"step": 30, "loss": 3.0}) == ""
    assert change({}, {}) == ""
